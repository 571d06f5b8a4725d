package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/millrace-data/millrace/internal/engine/schedule"
	"github.com/millrace-data/millrace/internal/fault"
)

// mostLosses is how often attempts at a task may be lost of which none comes further than those before: with the pauses
// between them more than a second, in which a worker is started again. What is lost more often is lost for
// a reason.
const mostLosses = 8

// firstPause is the time before the third attempt, which doubles with each after it. The second
// is made at once: a worker that died says nothing of the next one.
const firstPause = schedule.Second / 100

// pause is a task that waits for its time.
type pause struct {
	until schedule.Nanos
	node  *node
}

// Worker is a place with slots. It may join an executor and leave it at any time.
type Worker struct {
	Name  string
	Slots map[string]schedule.Amount
	// Stores says that what its tasks give is in its own memory, and lost when it leaves.
	Stores bool
}

// worker is a Worker in the executor's loop.
type worker struct {
	*Worker
	slots, free []schedule.Amount
	gone        bool
	setups      sync.Map // by *Stage: *setup
}

// setup is that of a stage on a worker.
type setup struct {
	turn chan struct{} // holds one token: who has it may set up, and reads and writes done
	done bool
}

// ready sets a stage up on the worker, if that was not done. It is for the goroutines of tasks.
func (w *worker) ready(ctx context.Context, s *Stage) error {
	if s.Setup == nil {
		return nil
	}
	found, known := w.setups.LoadOrStore(s, &setup{turn: make(chan struct{}, 1)})
	one := found.(*setup)
	if !known {
		one.turn <- struct{}{}
	}
	select {
	case <-one.turn:
		defer func() { one.turn <- struct{}{} }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if one.done {
		return nil
	}
	err := s.Setup(ctx, w.Worker)
	one.done = err == nil
	return err
}

// Join adds a worker.
func (e *Executor) Join(ctx context.Context, w *Worker) error {
	names := e.known()
	for name := range w.Slots {
		if _, ok := names[name]; !ok {
			return fmt.Errorf("engine: worker %s has slots of %q, which is none of the executor's resources", w.Name, name)
		}
	}
	return e.send(ctx, joined{w})
}

// Leave takes a worker out. Its tasks run again elsewhere, at once.
func (e *Executor) Leave(ctx context.Context, w *Worker) error { return e.send(ctx, left{w}) }

func (w *worker) take(e *Executor, needs []schedule.Amount) {
	if w.gone {
		return
	}
	for r, need := range needs {
		w.free[r] -= need
		e.resources[r].Free -= need
	}
}

func (w *worker) giveBack(e *Executor, needs []schedule.Amount) {
	if w.gone {
		return
	}
	for r, need := range needs {
		w.free[r] += need
		e.resources[r].Free += need
	}
}

// place is the worker for a task of a stage: of those that have the slots, the one with the most
// free ones or, after a loss or where one task runs after the other, the one that has been there longest; nil if none has.
func (e *Executor) place(n *node) (best *worker) {
	p, op, most := n.src.run.pipeline, n.op, schedule.Amount(-1)
	for _, w := range e.workers {
		if best != nil && (n.losses > 0 || n.src.narrow) {
			break
		}
		fits, free := true, schedule.Amount(0)
		for r, need := range p.ops[op].Needs {
			if need > 0 {
				fits, free = fits && w.free[r] >= need, free+w.free[r]
			}
		}
		if fits && free > most {
			best, most = w, free
		}
	}
	return best
}

// lost has a task run again whose attempt was lost.
func (e *Executor) lost(t *task, err error) {
	n := t.node
	if n.losses++; n.losses > mostLosses {
		e.fail(n.src.run, fault.As(fault.Lost, fmt.Errorf("stage %q was lost %d times in a row, the last time: %w", t.stage().Name, n.losses, err)))
		return
	}
	e.unpin(t)
	if n.state = idle; n.losses == 1 {
		e.again(n)
		return
	}
	n.state = paused
	until := e.now() + firstPause<<(n.losses-2)
	e.pauses = append(e.pauses, pause{until, n})
}

// unpin has the input of a task wait in the store again.
func (e *Executor) unpin(t *task) {
	if !t.released {
		for _, in := range t.node.in {
			in.held = true
		}
		t.pinned = 0
	}
}

// again has a task run, now or as soon as its inputs are there, and has those made again that are gone: up
// to the source task, if need be, which has a place in files.
func (e *Executor) again(n *node) {
	if n.state != idle {
		return // it runs anyway, and is looked at when it has ended
	}
	if n.complete() {
		n.src.run.pipeline.queue(n)
		return
	}
	n.state = blocked
	for _, in := range n.in {
		if in.part == nil && !in.lost && in.file == nil && in.move == nil {
			in.lost = true
			e.again(in.from)
		}
	}
}

// complete reports whether all inputs of a task are there.
func (n *node) complete() bool {
	return !slices.ContainsFunc(n.in, func(s *slot) bool { return s.part == nil })
}

// restore puts a partition that was made again where it was lost.
func (e *Executor) restore(s *slot, part Partition, w *worker) {
	s.part, s.held, s.lost, s.worker = part, true, false, w
	s.from.losses = 0
	e.store(s.from.src.run.pipeline, s.from.op, s.bytes)
	if s.to != nil && s.to.state == blocked && s.to.complete() {
		s.to.state = idle
		e.again(s.to)
	}
}

// missing reports whether something that a task gave has to be made again.
func (n *node) missing() bool {
	return slices.ContainsFunc(n.slots[n.done:], func(s *slot) bool { return s.lost })
}

// loseStored takes note of what a worker had in its memory.
func (e *Executor) loseStored(w *worker) {
	for _, p := range e.active {
		for _, r := range p.runs {
			for _, s := range r.sources[r.first:] {
				var gone []*slot
				s.root.each(func(s *slot) {
					if s.held && s.worker == w {
						gone = append(gone, s)
					}
				})
				for _, s := range gone {
					e.loseSlot(p, s)
				}
			}
		}
	}
}

func (e *Executor) loseSlot(p *Pipeline, s *slot) {
	e.store(p, s.from.op, -s.bytes)
	e.unfile(s)
	s.part, s.held, s.lost = nil, false, true
	if s.to != nil && s.to.state == queued {
		p.unqueue(s.to)
		s.to.state = blocked
	}
	e.again(s.from)
}

// resume queues the tasks whose pause is over, and says when the next one is, if there is any.
func (e *Executor) resume() (due schedule.Nanos, any bool) {
	now := e.now()
	e.pauses = slices.DeleteFunc(e.pauses, func(p pause) bool {
		if p.until > now {
			due = earliest(due, p.until)
			return false
		}
		p.node.state = idle
		e.again(p.node)
		return true
	})
	return due, len(e.pauses) > 0
}

// errGivenUp ends tasks whose source begins again.
var errGivenUp = errors.New("the source task begins again")

// restart has a source begin again. What was collected of it stays collected: the tree that comes is
// compared with it.
func (e *Executor) restart(s *source) {
	e.clear(s, errGivenUp)
	s.plant()
	s.queue()
}

// clear lets go of all that a source has in memory. Tasks that run keep their input until they have
// heard that they are to end.
func (e *Executor) clear(s *source, why error) {
	p := s.run.pipeline
	for _, t := range e.running {
		if t.node.src == s {
			e.disown(t, why)
		}
	}
	for op := range s.run.ready {
		for _, n := range slices.Clone(s.run.ready[op]) {
			if n.src == s {
				p.unqueue(n)
			}
		}
	}
	e.pauses = slices.DeleteFunc(e.pauses, func(p pause) bool { return p.node.src == s })
	var walk func(*node)
	walk = func(n *node) {
		for _, below := range n.slots[n.done:] {
			switch {
			case below.held:
				e.store(p, n.op, -below.bytes)
			case below.file != nil:
				e.store(p, n.op, -below.file.Bytes())
			}
			e.unfile(below)
			below.held, below.part = false, nil
			if below.child != nil {
				walk(below.child)
			}
		}
	}
	walk(s.root)
}

// disown ends a task whose result nobody wants.
func (e *Executor) disown(t *task, why error) {
	if !t.orphan {
		t.orphan = true
		t.end(why)
	}
}

// leave gives back what a task has, which has ended.
func (e *Executor) leave(t *task) {
	p, op := t.node.src.run.pipeline, t.node.op
	if t.slots {
		t.worker.giveBack(e, p.ops[op].Needs)
	}
	e.promise(p, op, -t.room)
	if t.pinned > 0 {
		e.store(p, op-1, -t.pinned)
	}
	at := slices.Index(p.running[op], t)
	p.running[op] = slices.Delete(p.running[op], at, at+1)
	p.ops[op].Running = slices.Delete(p.ops[op].Running, at, at+1)
	at = slices.Index(e.running, t)
	e.running = slices.Delete(e.running, at, at+1)
	if at := slices.Index(e.waiting, t); at >= 0 {
		e.waiting = slices.Delete(e.waiting, at, at+1)
	}
	t.room, t.pinned = 0, 0
	t.node.src.run.tasks--
}

// differs is the error of a task that gave something else than before.
func differs(t *task, what string) error {
	return fault.Userf("stage %q gave something else when it ran again (source task %d: %s): what it gives may depend on its input only", t.stage().Name, t.node.src.number, what)
}
