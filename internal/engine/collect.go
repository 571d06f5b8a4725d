package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/engine/schedule"
	"github.com/millrace-data/millrace/internal/fault"
)

// mostGiven is how many partitions a collector is given at a time: enough that small ones cost
// little each, and few enough that those it is done with are soon counted as such.
const mostGiven = 8

// answerAll gives collectors what there is for them.
func (e *Executor) answerAll() {
	for _, p := range slices.Clone(e.active) {
		for _, r := range slices.Clone(p.runs) {
			e.answer(r)
		}
	}
}

// answer gives a collector that waits what comes next, or the end of the run.
func (e *Executor) answer(r *run) {
	if !r.wanting {
		return
	}
	var parts []output
	if r.err == nil {
		parts = e.collect(r)
	}
	switch {
	case r.err == nil && len(parts) > 0:
		r.wanting = false
		r.answers <- answer{parts: parts}
	case r.tasks == 0 && (r.err != nil || r.first == len(r.sources)):
		r.wanting = false
		e.drop(r)
		r.answers <- answer{end: true, err: r.err}
	}
}

// collect takes what comes next in the order of the data out of the store.
func (e *Executor) collect(r *run) (parts []output) {
	last := len(r.pipeline.stages) - 1
	for r.first < len(r.sources) && r.err == nil {
		s := r.sources[r.first]
		slot, done := s.root.next(last)
		switch {
		case slot != nil && slot.part == nil:
			e.fetchNext(slot)
			return parts
		case slot != nil && len(parts) == mostGiven:
			return parts
		case slot != nil:
			if !e.repeated(s, slot) {
				r.given += slot.bytes
				parts = append(parts, output{s.number, slot.part})
			}
			slot.held, slot.part = false, nil
			for at := s.root; at != nil; at = at.toLast(last) {
				if at.op == last {
					at.done++
				}
			}
		case !done:
			return parts
		case s.count < len(s.digests):
			e.fail(r, fault.Userf("stage %q gave %d partitions of source task %d when it ran again, and at least %d before: what it gives may depend on its input only",
				r.pipeline.stages[last].Name, s.count, s.number, len(s.digests)))
		default:
			e.clear(s, errGivenUp)
			s.root = &node{src: s, op: -1, ended: true}
			r.first++
			e.completed++
		}
	}
	return parts
}

// toLast is the node below n from which the next partition is collected.
func (n *node) toLast(last int) *node {
	if n.op == last {
		return nil
	}
	return n.slots[n.done].child
}

// repeated reports whether a partition was collected before, from a tree that was lost, and compares it.
func (e *Executor) repeated(s *source, slot *slot) bool {
	r := s.run
	s.count++
	if s.count > len(s.digests) {
		s.digests = append(s.digests, slot.digest)
		return false
	}
	last := len(r.pipeline.stages) - 1
	e.store(r.pipeline, last, -slot.bytes)
	if s.digests[s.count-1] != slot.digest {
		e.fail(r, fault.Userf("stage %q gave something else when it ran again (partition %d of source task %d): what it gives may depend on its input only",
			r.pipeline.stages[last].Name, s.count-1, s.number))
	}
	return true
}

// fail ends a run, and frees what it has in memory.
func (e *Executor) fail(r *run, err error) {
	if r.err != nil {
		return
	}
	r.err = cmp.Or(err, fmt.Errorf("engine: a run failed without an error"))
	for _, s := range r.sources {
		e.clear(s, r.err)
	}
	e.drop(r)
	r.life.end(r.err)
}

// settle answers a collector of a run that is over, when the last of its tasks has ended.
func (e *Executor) settle(r *run) {
	if r.err != nil {
		e.answer(r)
	}
}

// drop takes a run out of those that have something to do.
func (e *Executor) drop(r *run) {
	p := r.pipeline
	at := slices.Index(p.runs, r)
	if at < 0 {
		return
	}
	p.runs = slices.Delete(p.runs, at, at+1)
	if len(p.runs) == 0 {
		e.active = slices.DeleteFunc(e.active, func(q *Pipeline) bool { return q == p })
		e.ending = append(e.ending, p)
	}
	e.turned.Store(true)
}

// order puts runs and pipelines in the order of their turns.
func (e *Executor) order() {
	if !e.turned.Swap(false) {
		return
	}
	by := func(a, b *run) int {
		switch x, y := a.turn(), b.turn(); {
		case schedule.Before(x, y):
			return -1
		case schedule.Before(y, x):
			return 1
		}
		return 0
	}
	for _, p := range e.active {
		slices.SortStableFunc(p.runs, by)
	}
	slices.SortStableFunc(e.active, func(p, q *Pipeline) int { return by(p.runs[0], q.runs[0]) })
	e.ending = slices.DeleteFunc(e.ending, func(p *Pipeline) bool { return p.used+p.prom == 0 })
}

func (r *run) turn() schedule.Turn {
	p := r.pipeline
	return schedule.Turn{Distance: r.seq - p.cursor.Load(), Weight: p.weight.Load(), Number: r.number}
}
