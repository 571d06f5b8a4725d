package simulate

import "github.com/millrace-data/millrace/internal/engine/schedule"

// The policies that ours is compared with. None of them is used by the engine.

// Greedy launches whatever is ready, the operators nearest to the end first.
func Greedy(s *schedule.Snapshot) schedule.Decision {
	for op := len(s.Operators) - 1; op >= 0; op-- {
		if s.Ready(op) {
			return schedule.Decision{Launch: true, Operator: op}
		}
	}
	return schedule.Decision{}
}

// Static gives each operator a number of tasks that it may run at a time.
func Static(tasks ...int) schedule.Policy {
	return func(s *schedule.Snapshot) schedule.Decision {
		for op := len(s.Operators) - 1; op >= 0; op-- {
			if s.Ready(op) && len(s.Operators[op].Running) < tasks[op] {
				return schedule.Decision{Launch: true, Operator: op}
			}
		}
		return schedule.Decision{}
	}
}

// Conservative launches a task only with room for all that it gives (section 4.3.2,
// last paragraph). It knows what tasks give.
func Conservative(gives ...int64) schedule.Policy {
	return func(s *schedule.Snapshot) schedule.Decision {
		for op := len(s.Operators) - 1; op >= 0; op-- {
			if keep, ok := hasRoom(s, op, gives[op]); ok && s.Ready(op) {
				return schedule.Decision{Launch: true, Operator: op, Promise: keep}
			}
		}
		return schedule.Decision{}
	}
}

// hasRoom returns what has to be kept for a task's output, and whether there is room
// for it. Its input makes room for some of it.
func hasRoom(s *schedule.Snapshot, op int, gives int64) (int64, bool) {
	room, in := s.Limit-s.Used-s.Promised, s.Operators[op].NextBytes
	if s.Pinned {
		keep := max(0, gives-in)
		return keep, keep <= room
	}
	return gives, gives <= room+in
}

// Literal is Algorithm 1 with the budget of Algorithm 2, as they are written. The
// source is launched by the budget; with sourceToo the general rule may launch it as
// well. It knows durations (seconds) and sizes, as if they were learned exactly, and
// keeps its budget between calls: take a new one for each run.
func Literal(sourceToo bool, seconds []float64, perSource []float64, gives []int64) schedule.Policy {
	b := &budget{sourceToo: sourceToo, seconds: seconds, perSource: perSource, gives: gives, left: -1}
	return b.decide
}

type budget struct {
	sourceToo bool
	seconds   []float64 // of a task of each operator
	perSource []float64 // tasks of each operator for one of the source
	gives     []int64
	left      int64
	updated   schedule.Nanos
}

func (b *budget) decide(s *schedule.Snapshot) schedule.Decision {
	if b.left < 0 {
		b.left = s.Limit
	}
	for ; s.Now >= b.updated+schedule.Second; b.updated += schedule.Second {
		b.left += int64(float64(b.gives[0]) / b.perPartition(s))
	}
	if s.Ready(0) && b.left >= b.gives[0] {
		b.left -= b.gives[0]
		return schedule.Decision{Launch: true}
	}
	best := -1
	for op := range s.Operators {
		if op == 0 && !b.sourceToo || !s.Ready(op) {
			continue
		}
		if _, ok := hasRoom(s, op, b.gives[op]); ok && (best < 0 || buffered(s, op) < buffered(s, best)) {
			best = op
		}
	}
	if best < 0 {
		return b.wait(s)
	}
	return schedule.Decision{Launch: true, Operator: best}
}

// wait asks to be called for the next update while sources are left and something can change.
func (b *budget) wait(s *schedule.Snapshot) schedule.Decision {
	busy := false
	for op := range s.Operators {
		for _, t := range s.Operators[op].Running {
			busy = busy || !t.Stalled
		}
	}
	if s.Operators[0].Queued == 0 || !busy && !s.Ready(0) {
		return schedule.Decision{}
	}
	return schedule.Decision{Wake: b.updated + schedule.Second}
}

// perPartition is Algorithm 2: the sum, over the operators after the source, of the
// seconds that they take for what one source task gives.
func (b *budget) perPartition(s *schedule.Snapshot) (sum float64) {
	for op := 1; op < len(s.Operators); op++ {
		sum += b.seconds[op] * b.perSource[op] / max(available(s, op), 1)
	}
	return sum
}

// available is how many tasks of the operator could run beside those of the others.
func available(s *schedule.Snapshot, op int) float64 {
	slots := 1e9
	for r, need := range s.Operators[op].Needs {
		if need == 0 {
			continue
		}
		free := s.Resources[r].Free + schedule.Amount(len(s.Operators[op].Running))*need
		slots = min(slots, float64(free)/float64(need))
	}
	return slots
}

// buffered are the bytes of an operator's outputs in the store.
func buffered(s *schedule.Snapshot, op int) int64 {
	if op+1 == len(s.Operators) {
		return 0
	}
	return s.Operators[op+1].QueuedBytes
}
