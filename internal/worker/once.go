package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// callFrame is what a worker is asked.
type callFrame struct {
	Op       string `json:"op"` // call or setup
	Function string `json:"function"`
	Digest   Digest `json:"digest"`
	Slot     int    `json:"slot"`
	Bytes    int    `json:"bytes"`
	Seed     uint64 `json:"seed"`
	Source   string `json:"source"`
	File     int    `json:"file"`
	Most     int    `json:"most,omitempty"`
}

// errRaised is that a function of whole batches raised, for a row that it did not name.
var errRaised = errors.New("the function raised")

// work is a batch as a worker gets it.
type work struct {
	size, file, most int
	fresh            bool // the worker has to be one that did nothing before, and does nothing else
	fill             func(to []byte)
}

// once runs rows on a worker, a new one if fresh: a result, the death of the worker, or an error.
func (f *Function) once(ctx context.Context, r rows, fresh bool) (done result, died *Death, err error) {
	w := work{size: f.size(r), file: r.file, most: r.most, fresh: fresh}
	if w.size > MaxBatch {
		err := fault.Userf("it has %d bytes, and a worker takes at most %d", w.size, MaxBatch)
		return result{columns: f.empty(), bad: []badRow{{r.lo, err}}, end: r.hi}, nil, nil // cut left it alone
	}
	w.fill = func(to []byte) { encode(to, r.columns, f.in, r.lo, r.hi, r.keys) }
	err = f.seated(ctx, w, func(s *seat) (err error) {
		done, died, err = f.away(ctx, s, w, r)
		return err
	}, func(s *seat, a answer) (err error) {
		died = a.death
		done, err = f.read(a, r, s.taken)
		if errors.Is(err, errGarbage) {
			s.process.retire("it wrote garbage")
		}
		return err
	})
	return done, died, err
}

// seated has a worker work on a batch: one here, whose answer take sees, or one of the pool whose seat there gets.
func (f *Function) seated(ctx context.Context, w work, there func(*seat) error, take func(*seat, answer) error) error {
	for {
		s, err := f.env.acquire(ctx, f, w.size, w.fresh)
		if err != nil {
			return f.unserved(ctx, err)
		}
		if s.far != nil {
			return there(s)
		}
		if err := f.sit(ctx, s, w, take); !errors.Is(err, errGone) {
			return err
		}
	}
}

// unserved is the error of a call that no worker took. The environment has tried to start some.
func (f *Function) unserved(ctx context.Context, err error) error {
	err = fmt.Errorf("function %s: %w", f.use.Name, err)
	if fault.ClassOf(err) == fault.Lost && ctx.Err() == nil {
		return fault.Tried(err)
	}
	return err
}

// sit has the worker of a seat work on a batch, gives its answer to take, and the seat back. errGone says that
// another seat is needed.
func (f *Function) sit(ctx context.Context, s *seat, w work, take func(*seat, answer) error) error {
	if err := s.in.reserve(w.size); err != nil {
		f.env.release(s)
		return usedUp(err)
	}
	w.fill(s.in.data)
	j := f.job(s, callFrame{"call", f.use.Name, f.what.Digest, s.index, w.size, f.use.Seed, f.use.Source, w.file, w.most})
	if err := f.submit(s, j); err != nil {
		f.env.release(s)
		return err
	}
	select {
	case a := <-j.done:
		defer f.env.release(s)
		a.death = cmp.Or(a.death, s.process.lacking(a.reply))
		return take(s, a)
	case <-ctx.Done():
		if !s.process.leave(j) {
			<-j.done
			f.env.release(s)
		}
		return ctx.Err()
	}
}

func (f *Function) job(s *seat, frame callFrame) *job {
	return &job{
		frame: frame, timeout: f.env.opt.Timeout, seat: s, done: make(chan answer, 1), use: f.words,
	}
}

// submit sends a job, after the setup of its function if the worker has not seen that. What
// becomes of the setup the job hears as well.
func (f *Function) submit(s *seat, j *job) error {
	if !f.what.Setup {
		return s.process.submit("", j)
	}
	setup := f.job(s, callFrame{Op: "setup", Function: f.use.Name, Digest: f.what.Digest})
	setup.timeout, setup.setup = f.env.opt.Start, true
	return s.process.submit(f.use.Name, setup, j)
}

// errGarbage is that a worker wrote what is no batch.
var errGarbage = errors.New("its worker wrote garbage")

func garbage(err error) error {
	return fmt.Errorf("%w: %w: a library that it uses may overwrite memory", errGarbage, err)
}

// read makes a result of an answer; memory is what the worker wrote. Of a worker that died there is none.
func (f *Function) read(a answer, r rows, memory func(bytes int) ([]byte, error)) (result, error) {
	switch {
	case a.death != nil:
		return result{}, nil
	case a.reply.Broken != "" && a.reply.Setup:
		return result{}, fault.Userf("function %s: %s", f.use.Name, a.reply.Broken)
	case a.reply.Broken != "":
		return result{}, fault.Userf("function %s: %s: %s", f.use.Name, r.named(), a.reply.Broken)
	case a.reply.Raised != "":
		return result{}, fmt.Errorf("function %s: %s: %w: %s", f.use.Name, r.named(), errRaised, a.reply.Raised)
	}
	done, err := f.decode(memory, a.reply, r)
	if fault.ClassOf(err) == fault.Lost {
		return result{}, fmt.Errorf("function %s: %s: %w", f.use.Name, r.named(), err)
	}
	if err != nil && !errors.Is(err, errTooMany) {
		err = garbage(err)
	}
	if err != nil {
		return result{}, fault.Userf("function %s: %s: %w", f.use.Name, r.named(), err)
	}
	r.hi = done.end
	f.growth.learn(f.size(r), a.reply.Bytes)
	return done, nil
}

func (f *Function) decode(memory func(bytes int) ([]byte, error), reply Reply, r rows) (done result, err error) {
	given := r.hi - r.lo
	if reply.Rows != 0 {
		if reply.Rows < 0 || reply.Rows > given {
			return done, fmt.Errorf("an answer for %d rows of %d", reply.Rows, given)
		}
		given = reply.Rows
	}
	done.end = r.lo + given
	data, err := memory(reply.Bytes)
	if err != nil {
		return done, err
	}
	if done.columns, done.from, err = decode(data, f.what.Out, given); err != nil {
		return done, err
	}
	last := -1
	for _, e := range reply.Errors {
		if e.Row <= last || e.Row >= given || contains(done.from, e.Row) {
			return done, fmt.Errorf("an error of row %d of %d", e.Row, given)
		}
		last = e.Row
		done.bad = append(done.bad, badRow{r.lo + e.Row, fault.As(fault.User, errors.New(e.Text))})
	}
	if r.lo > 0 {
		own := make([]int32, len(done.from)) // what was decoded may be shared
		for i, at := range done.from {
			own[i] = at + int32(r.lo)
		}
		done.from = own
	}
	return done, nil
}

// differs returns the first value in which two columns differ; -1 if they are equal.
func differs(a, b *format.Column) int {
	if len(a.Kinds) != len(b.Kinds) {
		return min(len(a.Kinds), len(b.Kinds))
	}
	for i := range a.Kinds {
		if !same(a, b, i, i) {
			return i
		}
	}
	return -1
}

// same reports whether value i of a is value j of b.
func same(a, b *format.Column, i, j int) bool {
	if a.Kinds[i] != b.Kinds[j] || a.Sizes[i] != b.Sizes[j] {
		return false
	}
	x, y, n := int(a.Numbers[i]), int(b.Numbers[j]), int(a.Sizes[i])
	switch a.Kinds[i] {
	case format.String, format.Bytes:
		return bytes.Equal(a.Bytes[x:x+n], b.Bytes[y:y+n])
	case format.Tokens:
		return slices.Equal(a.Tokens[x:x+n], b.Tokens[y:y+n])
	case format.List:
		for e := range n {
			if !same(a.Elements, b.Elements, x+e, y+e) {
				return false
			}
		}
		return true
	}
	return x == y
}

// contains reports whether a row is in from, which never falls.
func contains(from []int32, row int) bool {
	_, found := slices.BinarySearch(from, int32(row))
	return found
}
