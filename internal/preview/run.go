package preview

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/wire"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// ErrStop ends a Run early and without an error when visit returns it.
var ErrStop = errors.New("stop here")

// Run plans steps from the start on, at most `steps` of them (all if it is negative),
// and gives each to visit, in order, while the blocks after it are read. It returns
// the step that does not exist if it came to the end of the data, else -1. A Job
// is run once.
func (j *Job) Run(ctx context.Context, steps int64, visit func(*plan.Step) error) (end int64, err error) {
	if steps == 0 {
		return -1, nil
	}
	ctx, stop := context.WithCancel(ctx)
	work, ctx := errgroup.WithContext(ctx)
	d := &drive{job: j, core: j.core, visit: visit, left: steps, end: -1, todo: make(chan plan.Want), done: make(chan *reading)}
	for range j.workers {
		work.Go(func() error { return d.read(ctx) })
	}
	err = d.loop(ctx)
	stop()
	failed := work.Wait()
	switch {
	case errors.Is(err, ErrStop):
		return d.end, nil
	case failed != nil && errors.Is(err, context.Canceled): // it is why the loop was stopped
		return d.end, failed
	}
	return d.end, err
}

// drive is one run: a core, and the workers that read for it.
type drive struct {
	job   *Job
	core  *control.Core
	visit func(*plan.Step) error
	left  int64 // steps to plan
	end   int64
	stop  bool // visit has seen enough
	wants []plan.Want
	todo  chan plan.Want
	done  chan *reading
}

// reading is a block that was read.
type reading struct {
	source *source
	report *pb.BlockRead
	held   held
	took   time.Duration
}

func (d *drive) over() bool { return d.left == 0 || d.end >= 0 || d.stop }

// loop owns the core: what it wants goes to the workers, what they read to it.
func (d *drive) loop(ctx context.Context) error {
	err := d.act(d.job.effects)
	for err == nil && !d.over() {
		todo, next := d.todo, plan.Want{}
		if len(d.wants) == 0 {
			todo = nil
		} else {
			next = d.wants[0]
		}
		select {
		case todo <- next:
			d.wants = d.wants[1:]
		case r := <-d.done:
			err = d.take(r)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return err
}

// take tells the core of a block, and keeps what explains its samples.
func (d *drive) take(r *reading) error {
	s := r.source
	s.usage.read(r)
	s.held[int64(r.report.Seq)] = r.held
	d.job.hold(s, r.held.bytes, len(r.held.places))
	return d.act(d.core.Apply(wire.BlockEvent(self, r.report)))
}

// act carries out effects. A step that was visited is done with: that gives
// further effects.
func (d *drive) act(effects []control.Effect) error {
	for len(effects) > 0 && !d.over() {
		e := effects[0]
		effects = effects[1:]
		switch e := e.(type) {
		case control.Read:
			d.wants = append(d.wants, plan.Want{Source: e.Source, Seq: e.Seq})
		case control.Release:
			for i, source := range e.Source {
				d.job.release(d.job.sources[source], e.Before[i])
			}
		case control.Cut:
			if err := d.visit(e.Step); err != nil {
				d.stop = errors.Is(err, ErrStop)
				return err
			}
			d.left--
			effects = append(effects, d.core.Apply(control.Done{Step: e.Step.Step + 1})...)
		case control.Ended:
			d.end = e.Step
		case control.Failing:
			return e.Err
		}
	}
	return nil
}

// read reads what the core wants until ctx ends.
func (d *drive) read(ctx context.Context) error {
	for {
		var want plan.Want
		select {
		case want = <-d.todo:
		case <-ctx.Done():
			return nil
		}
		r, err := d.job.read(ctx, want)
		if err != nil {
			return err
		}
		select {
		case d.done <- r:
		case <-ctx.Done():
			return nil
		}
	}
}

// read reads a block, and keeps none of its tokens.
func (j *Job) read(ctx context.Context, want plan.Want) (*reading, error) {
	s, from := j.sources[want.Source], time.Now()
	worker := s.worker()
	defer s.idle.Put(worker)
	b, err := s.Outline(ctx, j.store, worker, want.Seq, s.bans)
	if err != nil {
		return nil, err
	}
	return &reading{
		source: s, report: b.Report(uint32(want.Source), uint64(want.Seq)),
		held: held{b.Places, b.Masked, b.Bytes(), b.Beside}, took: time.Since(from),
	}, nil
}

// worker takes a worker of the source's chain; it goes back into idle.
func (s *source) worker() *transform.Worker {
	if worker, ok := s.idle.Get().(*transform.Worker); ok {
		return worker
	}
	return s.Chain.Worker()
}

// hold notes that so much more, or less, is held of a source.
func (j *Job) hold(s *source, bytes int64, samples int) {
	s.usage.hold(bytes, samples)
	j.total.hold(bytes, samples)
}

// release lets go of the blocks of a source that no step needs any more.
func (j *Job) release(s *source, before int64) {
	for seq, h := range s.held {
		if seq < before {
			j.hold(s, -h.bytes, -len(h.places))
			delete(s.held, seq)
		}
	}
	clear(s.again)
}

// Place is where a sample was read. The blocks of a step that Run visits are at
// hand; others are read again.
func (j *Job) Place(ctx context.Context, ref plan.Ref) (order.Place, error) {
	h, err := j.blockOf(ctx, ref)
	if err != nil {
		return order.Place{}, err
	}
	return h.places[ref.Index], nil
}

// blockOf is what is held of the block of a sample.
func (j *Job) blockOf(ctx context.Context, ref plan.Ref) (held, error) {
	s := j.sources[ref.Source]
	if h, ok := s.held[ref.Seq]; ok {
		return h, nil
	}
	if h, ok := s.again[ref.Seq]; ok {
		return h, nil
	}
	r, err := j.read(ctx, plan.Want{Source: ref.Source, Seq: ref.Seq})
	if err != nil {
		return held{}, err
	}
	s.again[ref.Seq] = r.held
	return r.held, nil
}
