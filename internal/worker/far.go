package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
)

// A batch may go to workers of another machine, as an attempt: the same bytes that a worker here gets in shared
// memory. What comes back is what a worker here would have answered, or how it died. So whatever is
// decided about rows is decided here, by the same code, wherever they were worked on.

// Attempt is one try at a batch of rows.
type Attempt struct {
	Use   Use
	File  int // number in the manifest
	Most  int // bytes that come out, above which rows may be left; 0: none is
	Fresh bool
	Batch []byte // in the layout of docs/bytes.md
}

// Outcome is what became of an attempt: a worker's answer, and the batch that came out, or its death.
type Outcome struct {
	Reply Reply
	Batch []byte
	Death *Death // nil: it answered
}

// Pool runs attempts with workers of another machine. It is safe for concurrent use.
type Pool interface {
	// Name is the pool's address.
	Name() string
	// Run makes an attempt. An error says that the pool, or the way to it, was lost, or that ctx ended. The batch of the
	// attempt is not used after it returned.
	Run(ctx context.Context, a Attempt) (Outcome, error)
}

// FarStatus says what an environment has on the way to a pool.
type FarStatus struct {
	Name    string
	Workers int // that serve it
	Taken   int // batches on the way
}

// Run makes an attempt with a worker of the environment, for a loader on another machine. An error says that
// none can be had, or that ctx ended.
func (e *Environment) Run(ctx context.Context, a Attempt) (o Outcome, err error) {
	f, err := e.Function(ctx, a.Use)
	if err != nil {
		return o, err
	}
	w := work{size: len(a.Batch), file: a.File, most: a.Most, fresh: a.Fresh, fill: func(to []byte) { copy(to, a.Batch) }}
	if w.size > MaxBatch || w.size < headWords*8 {
		return o, fmt.Errorf("a batch of %d bytes", w.size)
	}
	err = f.seated(ctx, w, nil, func(s *seat, got answer) error { // nobody joins a pool's environment
		o.Reply, o.Death = got.reply, got.death
		if got.death != nil || o.Reply.Bytes == 0 {
			return nil
		}
		data, err := s.taken(o.Reply.Bytes)
		switch {
		case fault.ClassOf(err) == fault.Lost:
			return err
		case err != nil:
			s.process.retire("it wrote garbage")
			o.Reply = Reply{Broken: garbage(err).Error()}
			return nil
		}
		o.Batch = append([]byte(nil), data...)
		return nil
	})
	return o, err
}

// away has a pool work on rows, in one of its seats.
func (f *Function) away(ctx context.Context, s *seat, w work, r rows) (result, *Death, error) {
	defer f.env.release(s)
	batch := make([]byte, w.size)
	w.fill(batch)
	pool := s.far.pool
	o, err := pool.Run(ctx, Attempt{f.use, w.file, w.most, w.fresh, batch})
	switch {
	case ctx.Err() != nil:
		return result{}, nil, ctx.Err()
	case err != nil:
		return result{}, &Death{Why: fmt.Sprintf("worker pool %s was lost (%v)", pool.Name(), err), Outside: true, Working: true}, nil
	case o.Death == nil && o.Reply.Bytes != len(o.Batch):
		err = fault.Userf("function %s: %s: an answer of %d bytes has %d", f.use.Name, r.named(), o.Reply.Bytes, len(o.Batch))
	}
	var done result
	if err == nil {
		done, err = f.read(answer{o.Reply, o.Death}, r, func(int) ([]byte, error) { return o.Batch, nil })
	}
	done.where = pool.Name()
	if err != nil && !errors.Is(err, errRaised) {
		err = fault.As(fault.ClassOf(err), fmt.Errorf("%w (on worker pool %s)", err, pool.Name()))
	}
	return done, o.Death, err
}

// Options are those that the environment was opened with, with defaults filled in.
func (e *Environment) Options() Options { return e.opt }
