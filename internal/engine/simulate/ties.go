package simulate

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
)

// What happens at the same instant has no order of its own: tasks end, they give partitions one by one and
// then their slots, and the policy is asked between any two of these, or after all. An executor takes
// them in as its goroutines happen to run. Without Config.Ties, tasks end by their numbers and
// give what they have at once, and the policy is asked after all.

// ties is a random order of the events of each instant.
type ties struct {
	*rand.Rand
	// Shares of the choices, drawn for the whole run, since what goes the same way at each instant
	// is what makes a rhythm: that the policy is asked next, that what has room next is of the task that gave least, and
	// that a task which gave all keeps its slots for other events of the instant.
	ask, share, late float64
}

func newTies(seed uint64) *ties {
	t := &ties{Rand: rand.New(rand.NewPCG(seed, 0))}
	quarters := func() float64 { return float64(t.IntN(5)) / 4 }
	t.ask, t.share, t.late = quarters()*0.8, quarters(), quarters()
	return t
}

// chance is true in a share of the cases.
func (t *ties) chance(share float64) bool { return t.Float64() < share }

// tied takes in what happens now.
func (r *run) tied() {
	for r.due() {
		switch {
		case r.ties.chance(r.ties.ask):
			r.decide()
		case r.ties.chance(0.5):
			r.giveOne()
		default:
			r.finish(heap.Remove(&r.running, r.endsNow()).(*task))
		}
	}
	for r.giveOne() {
		if r.ties.chance(r.ties.ask) {
			r.decide()
		}
	}
}

// due reports whether a task ends now.
func (r *run) due() bool { return len(r.running) > 0 && r.running[0].ends <= r.s.Now }

// endsNow is where in the heap one of the tasks is that end now.
func (r *run) endsNow() int {
	var ends []int
	for i, t := range r.running {
		if t.ends <= r.s.Now {
			ends = append(ends, i)
		}
	}
	return ends[r.ties.IntN(len(ends))]
}

// giveOne moves one partition into the store if one has room: of the operator nearest to the end that
// has one, and there of the task that began first, or of that which gave least so far, which keeps most tasks
// under way.
func (r *run) giveOne() bool {
	for op := len(r.byOp) - 1; op >= 0; op-- {
		next := slices.DeleteFunc(slices.Clone(r.byOp[op]), func(t *task) bool { return !t.stalled })
		if r.ties.chance(r.ties.share) {
			slices.SortStableFunc(next, func(a, b *task) int { return a.given - b.given })
		}
		if slices.ContainsFunc(next, func(t *task) bool { return r.give(t, 1) }) {
			return true
		}
	}
	return false
}

// atOnce is how many partitions a task gives the moment that it ends.
func (r *run) atOnce() int {
	if r.ties != nil {
		return 0
	}
	return math.MaxInt
}

// later reports whether a task that gave all it has keeps its slots for other events of the instant.
func (r *run) later() bool { return r.ties != nil && r.ties.chance(r.ties.late) }

// keep has the room of a task's input, which has left the store, wait for what the task gives.
func (r *run) keep(t *task) {
	t.promise += t.lineage.In
	op := &r.s.Operators[t.op]
	op.Running[t.slot].Promise = t.promise
	op.Promised += t.lineage.In
	r.s.Promised += t.lineage.In
}

// note has the policy know which tasks wait for room: not those that have it, and will use it in this instant.
func (r *run) note() {
	for op := range r.byOp {
		for _, t := range r.byOp[op] {
			r.s.Operators[op].Running[t.slot].Stalled = t.stalled && t.given < len(t.out) && t.out[t.given] > r.room(t)
		}
	}
}
