package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-data/millrace/internal/engine/schedule"
	"github.com/millrace-data/millrace/internal/fault"
)

// The events of the loop, and what each changes.
type (
	begun     struct{ run *run }
	wanted    struct{ run *run } // the collector has taken what it was given, and waits for more
	cancelled struct {
		run *run
		why error
	}
	asked struct {
		task  *task
		bytes int64
	}
	released struct{ task *task }
	emitted  struct {
		task   *task
		part   Partition
		bytes  int64
		digest uint64
	}
	ended struct {
		task   *task
		err    error
		waited time.Duration
	}
	joined   struct{ worker *Worker }
	provided struct {
		resource int
		name     string
		slots    schedule.Amount
	}
	resized struct {
		resource int
		slots    schedule.Amount
	}
	left struct{ worker *Worker }
)

func (ev begun) apply(e *Executor) {
	r := ev.run
	p := r.pipeline
	e.numbers++
	r.number = e.numbers
	if len(p.runs) == 0 {
		e.active = append(e.active, p)
		e.ending = slices.DeleteFunc(e.ending, func(q *Pipeline) bool { return q == p })
	}
	p.runs = append(p.runs, r)
	if p.ops[0].Estimate.Tasks == 0 && len(r.sources) > 0 {
		p.ops[0].Estimate.Out = r.sources[0].tasks[0].Expect
	}
	for _, s := range r.sources {
		s.queue()
	}
	e.turned.Store(true)
}

func (ev wanted) apply(e *Executor) {
	r := ev.run
	e.taken(r)
	r.wanting = true
}

// taken counts what a collector had in hand no more.
func (e *Executor) taken(r *run) {
	e.store(r.pipeline, len(r.pipeline.stages)-1, -r.given)
	r.given = 0
}

func (ev cancelled) apply(e *Executor) {
	e.taken(ev.run)
	ev.run.wanting = true
	e.fail(ev.run, ev.why)
	e.answer(ev.run)
}

func (ev asked) apply(e *Executor) {
	t := ev.task
	e.asks++
	t.asks, t.asked = ev.bytes, e.asks
	e.waiting = append(e.waiting, t)
	t.note(t.node.src.run.pipeline, true)
}

func (ev released) apply(e *Executor) {
	t := ev.task
	p := t.node.src.run.pipeline
	if t.orphan { // all that it has is given back when it ends
		return
	}
	t.node.forgetInput()
	e.store(p, t.node.op-1, -t.pinned)
	e.promise(p, t.node.op, t.pinned)
	t.room += t.pinned
	t.pinned, t.released = 0, true
	t.note(p, false)
}

func (ev emitted) apply(e *Executor) {
	t := ev.task
	n, p := t.node, t.node.src.run.pipeline
	if t.orphan {
		return
	}
	at := t.emitted
	t.emitted++
	t.out += ev.bytes
	t.room -= ev.bytes
	e.promise(p, n.op, -ev.bytes)
	t.note(p, false)
	if at < len(n.slots) { // an attempt before gave it
		if n.slots[at].digest != ev.digest {
			e.fail(n.src.run, differs(t, fmt.Sprintf("its partition %d is another", at)))
		} else if n.slots[at].lost {
			e.restore(n.slots[at], ev.part, t.worker)
		}
		if n.ended && !n.missing() { // it ran for that only
			n.state = idle
			n.forgetInput()
			e.disown(t, errGivenUp)
		}
		return
	}
	s := &slot{part: ev.part, bytes: ev.bytes, digest: ev.digest, held: true, worker: t.worker, from: n}
	n.slots, n.losses = append(n.slots, s), 0 // an attempt that comes further is none of many in a row
	e.store(p, n.op, ev.bytes)
	if n.op+1 == len(p.stages) {
		return
	}
	switch next := &p.stages[n.op+1]; {
	case next.Gather != 0: // when all is there
	case 2*ev.bytes >= next.Merge:
		p.queue(n.below(at, []*slot{s}))
	default:
		n.src.loose++
	}
	e.merge(n.src, n.op)
}

func (ev ended) apply(e *Executor) {
	t := ev.task
	r := t.node.src.run
	if t.orphan || r.err != nil {
		e.leave(t)
		e.settle(r)
		return
	}
	switch class := fault.ClassOf(ev.err); {
	case ev.err == nil:
		e.finish(t, ev)
	case r.life.ctx.Err() != nil:
		e.fail(r, context.Cause(r.life.ctx))
	case class == fault.Lost && !errors.Is(ev.err, fault.ErrTried):
		e.lost(t, ev.err)
	default:
		e.fail(r, fault.As(class, fmt.Errorf("stage %q: %w", t.stage().Name, ev.err)))
	}
	e.leave(t)
	e.settle(r)
}

// finish ends a node.
func (e *Executor) finish(t *task, ev ended) {
	n, r := t.node, t.node.src.run
	p := r.pipeline
	if t.emitted < len(n.slots) {
		e.fail(r, differs(t, fmt.Sprintf("%d partitions, and %d before", t.emitted, len(n.slots))))
		return
	}
	n.forgetInput()
	n.state, n.losses = idle, 0
	if n.missing() {
		e.again(n)
	}
	if n.ended { // what it had given was made again
		return
	}
	n.ended = true
	o := &p.ops[n.op]
	o.Estimate = o.Estimate.Learn(schedule.Observation{
		Duration: e.now() - t.started - schedule.Nanos(ev.waited), In: n.bytes, Out: t.out, Parts: t.emitted,
	})
	for op := n.op; op+1 < len(p.stages); op++ { // what comes last of a stage may end a group of any later one
		e.merge(n.src, op)
	}
	if n.op < p.gathers {
		n.src.left--
		e.gather(n.src)
	}
}

// merge puts together what can be of a source's small partitions.
func (e *Executor) merge(s *source, op int) {
	p := s.run.pipeline
	g := merging{op: op, merge: p.stages[op+1].Merge}
	if g.merge == 0 || s.loose == 0 {
		return
	}
	g.take = func(first *node, at int, in []*slot) {
		s.loose -= len(in)
		e.again(first.below(at, in))
	}
	if g.walk(s.root) {
		g.flush()
	}
}

func (ev joined) apply(e *Executor) {
	w := &worker{Worker: ev.worker}
	names := e.known()
	for name, n := range ev.worker.Slots {
		e.offer(w, names[name], n)
	}
	e.workers = append(e.workers, w)
}

func (ev provided) apply(e *Executor) {
	e.offer(e.workers[0], ev.resource, ev.slots) // the one that never leaves
	e.resources[ev.resource].Name = ev.name
}

func (ev resized) apply(e *Executor) {
	w := e.workers[0]
	e.offer(w, ev.resource, ev.slots-w.slots[ev.resource])
}

// offer adds slots of a resource, which may be a new one, to those of a worker.
func (e *Executor) offer(w *worker, r int, n schedule.Amount) {
	if missing := r + 1 - len(e.resources); missing > 0 {
		e.resources = append(e.resources, make([]schedule.Resource, missing)...)
	}
	for _, of := range append(slices.Clone(e.workers), w) {
		if missing := len(e.resources) - len(of.slots); missing > 0 {
			of.slots, of.free = append(of.slots, make([]schedule.Amount, missing)...), append(of.free, make([]schedule.Amount, missing)...)
		}
	}
	w.slots[r], w.free[r] = w.slots[r]+n, w.free[r]+n
	e.resources[r].Slots += n
	e.resources[r].Free += n
}

func (ev left) apply(e *Executor) {
	at := slices.IndexFunc(e.workers, func(w *worker) bool { return w.Worker == ev.worker })
	if at < 0 {
		return
	}
	w := e.workers[at]
	e.workers = slices.Delete(e.workers, at, at+1)
	for r := range e.resources {
		e.resources[r].Slots -= w.slots[r]
		e.resources[r].Free -= w.free[r]
	}
	w.gone = true
	why := fault.Lostf("worker %s left", w.Name)
	for _, t := range slices.Clone(e.running) {
		if t.worker == w && !t.orphan {
			e.disown(t, why)
			e.lost(t, why)
		}
	}
	if w.Stores {
		e.loseStored(w)
	}
}
