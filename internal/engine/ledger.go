package engine

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/millrace-data/millrace/internal/engine/schedule"
)

// The ledger counts partitions from the moment that a task has room for them until a collector has taken
// them or the last task that reads them has ended. Room is given only within the limit, but for one case: if
// nothing works any more, nothing but the first source is left in memory, and its task still has too
// little, then it gets what it asks for. That is a single record, or what a stage makes of one, that
// is larger than what the limit leaves for it.

// Usage is what the ledger says.
type Usage struct {
	Stored   int64 // bytes of partitions
	Promised int64 // bytes that tasks may still fill
	Peak     int64 // greatest sum of both
	Outside  int64 // bytes that others have of the limit
	Tasks    int64 // goroutines
	Waiting  int64 // of them, for room
	Spilled  int64 // bytes of partitions outside of memory
	Written  int64 // bytes of all that ever were
}

// ledgerSeen is a copy of the ledger for those who ask.
type ledgerSeen struct{ stored, promised, peak, tasks, waiting, spilled, written atomic.Int64 }

func (s *ledgerSeen) store(e *Executor) {
	s.stored.Store(e.used)
	s.promised.Store(e.promised)
	s.tasks.Store(int64(len(e.running)))
	s.waiting.Store(int64(len(e.waiting)))
}

// Usage tells how much of the limit is in use.
func (e *Executor) Usage() Usage {
	s := &e.seen
	return Usage{Stored: s.stored.Load(), Promised: s.promised.Load(), Peak: s.peak.Load(), Outside: e.outside.Load(), Tasks: s.tasks.Load(), Waiting: s.waiting.Load(),
		Spilled: s.spilled.Load(), Written: s.written.Load()}
}

// Outside sets how much of the limit others use.
func (e *Executor) Outside(bytes int64) { e.outside.Store(bytes) }

// store counts bytes of what a stage gave, more or less of them.
func (e *Executor) store(p *Pipeline, op int, bytes int64) {
	p.ops[op].Stored += bytes
	p.used += bytes
	e.used += bytes
	e.peak()
}

// promise counts bytes that tasks of a stage may fill.
func (e *Executor) promise(p *Pipeline, op int, bytes int64) {
	p.ops[op].Promised += bytes
	p.prom += bytes
	e.promised += bytes
	e.peak()
}

func (e *Executor) peak() {
	if sum := e.used + e.promised; sum > e.seen.peak.Load() {
		e.seen.peak.Store(sum)
	}
}

// limitOf is what a pipeline has of the limit. Others that have work keep what lets them end a task.
func (e *Executor) limitOf(p *Pipeline) int64 {
	limit := e.limit - e.outside.Load()
	for _, q := range e.active {
		if q != p {
			limit -= max(q.used+q.prom, min(q.credits, e.limit/int64(2*len(e.active))))
		}
	}
	for _, gone := range e.ending {
		if gone != p {
			limit -= gone.used + gone.prom
		}
	}
	return limit
}

// room is how many bytes a task may have now beside those that it has. The first source of all may
// use what is kept for it, whatever began before it.
func (e *Executor) room(t *task) int64 {
	s, op := e.roomFor(t.node.src), t.node.op
	if t.node.src == e.first() {
		return s.Room(op)
	}
	return s.RoomOf(op, slices.Index(t.node.src.run.pipeline.running[op], t))
}

// roomFor is what the policy hears of room for a source.
func (e *Executor) roomFor(source *source) *schedule.Snapshot {
	p := source.run.pipeline
	s := &p.snap
	*s = schedule.Snapshot{Now: e.now(), Operators: p.ops, Limit: e.limitOf(p), Used: p.used, Promised: p.prom, Pinned: true}
	if source != e.first() {
		s.Limit -= min(p.reserve, s.Limit/2)
	}
	return s
}

// first is the source that is collected first, or nil.
func (e *Executor) first() *source {
	if len(e.active) == 0 {
		return nil
	}
	r := e.active[0].runs[0]
	if r.first < len(r.sources) {
		return r.sources[r.first]
	}
	return nil
}

// grant gives room to tasks that wait for it: those of the last stages before the others, since what
// they give is gone soonest, and within a stage by the order of runs and data.
func (e *Executor) grant() (any bool) {
	if len(e.waiting) > 1 {
		slices.SortStableFunc(e.waiting, func(a, b *task) int {
			n, m := a.node, b.node
			if n.op != m.op || n.src.run == m.src.run {
				return cmp.Or(m.op-n.op, n.before(m))
			}
			return cmp.Compare(a.asked, b.asked)
		})
	}
	for i := 0; i < len(e.waiting); {
		t := e.waiting[i]
		if t.orphan || !t.node.turn() || t.node.src.narrow && t.past() || t.asks > e.room(t) {
			i++
			continue
		}
		e.give(t)
		any = true
	}
	return any
}

// give lets a task have what it asks for.
func (e *Executor) give(t *task) {
	at := slices.Index(e.waiting, t)
	e.waiting = slices.Delete(e.waiting, at, at+1)
	p := t.node.src.run.pipeline
	t.room += t.asks
	e.promise(p, t.node.op, t.asks)
	if !t.slots { // they may be taken: the task has been waiting long enough
		t.slots = true
		t.worker.take(e, p.ops[t.node.op].Needs)
	}
	t.note(p, false)
	t.grants <- t.asks
	t.asks = 0
}

// past reports whether a task has to make something again that it is past.
func (t *task) past() bool {
	lost := slices.IndexFunc(t.node.slots, func(s *slot) bool { return s.lost })
	return lost >= 0 && lost < t.emitted
}

// note has the policy know how a task stands.
func (t *task) note(p *Pipeline, stalled bool) {
	op := t.node.op
	o := &p.ops[op].Running[slices.Index(p.running[op], t)]
	o.Promise, o.Given, o.Stalled = t.room, t.out, stalled
}

// stuck reports whether nothing will happen by itself: no task works, and no collector.
func (e *Executor) stuck() bool {
	if len(e.running) > len(e.waiting) || e.moving > 0 || e.first() == nil || slices.ContainsFunc(e.waiting, func(t *task) bool { return t.orphan }) {
		return false
	}
	for _, p := range e.active {
		for _, r := range p.runs {
			if !r.wanting {
				return false
			}
		}
	}
	return true
}

// unblock has something happen again, and says whether it does. Tasks that wait give back their
// slots, and a first source that is narrow starts its next task. If that does not help, what is needed last of all that
// waits goes to the disk, if there may be any there. If nothing does, the source that is needed last gives up what it has
// and begins again later.
// If there is no other source, the first one begins again narrowly, with one task after the other in the order
// of the data; and if it is narrow, its task gets what it asks for.
func (e *Executor) unblock() bool {
	freed := false
	for _, t := range e.waiting {
		if t.slots {
			t.slots, freed = false, true
			t.worker.giveBack(e, t.node.src.run.pipeline.ops[t.node.op].Needs)
		}
	}
	if freed {
		return true
	}
	if s := e.first(); s.narrow { // what its next task takes would go to the disk first, and has to come back
		if n := s.next(); n != nil && e.roomFor(s).Room(n.op) > 0 && e.start(n) {
			return true
		}
	}
	if e.spillOne() {
		return true
	}
	if s := e.last(); s != nil {
		s.barred = e.completed
		e.restart(s)
		return true
	}
	if n := e.first().gatherer(); n != nil && e.help(n) { // one task is left, which takes all the rest
		return true
	}
	if s := e.first(); !s.narrow {
		s.narrow = true
		e.restart(s)
		return true
	}
	return e.fetchNeeded(e.first()) || e.help(e.first().next())
}

// start starts a task for which the policy sees no room, if it waits to begin and there is a slot.
func (e *Executor) start(n *node) bool {
	if n.state != queued || e.place(n) == nil {
		return false
	}
	e.launch(n, schedule.Decision{})
	return true
}

// help starts the task that all wait for, or gives it what it asks for. One that has to make something again which it
// is past begins again.
func (e *Executor) help(n *node) bool {
	if e.start(n) {
		return true
	}
	at := slices.IndexFunc(e.waiting, func(t *task) bool { return t.node == n })
	if at < 0 {
		return false
	}
	t := e.waiting[at]
	if t.past() {
		e.disown(t, errGivenUp)
		e.unpin(t)
		t.node.state = idle
		e.again(t.node)
	} else if t.node.src.gathered() > 0 {
		e.unfit(t)
	} else {
		e.give(t)
	}
	return true
}

// last is the source that is needed last of those that have something in memory; nil if only
// the first has.
func (e *Executor) last() *source {
	for i := len(e.active) - 1; i >= 0; i-- {
		p := e.active[i]
		for j := len(p.runs) - 1; j >= 0; j-- {
			r := p.runs[j]
			for k := len(r.sources) - 1; k >= r.first; k-- {
				if s := r.sources[k]; s != e.first() && s.holds(e) {
					return s
				}
			}
		}
	}
	return nil
}

// holds reports whether a source has anything in memory.
func (s *source) holds(e *Executor) (any bool) {
	s.root.each(func(s *slot) { any = any || s.held })
	return any || slices.ContainsFunc(e.running, func(t *task) bool { return t.node.src == s && !t.orphan })
}
