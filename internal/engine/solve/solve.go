// Package solve finds the shortest schedule of a small pipeline in discrete time, as
// appendix B of Ray Data's paper does: the yardstick that schedulers are held
// against. It searches tick by tick over states without history, in which executors and tasks of
// one operator are interchangeable.
//
// As long as no layer of states had to be cut, the answer is the optimum. Beyond [Problem.Width] states a
// tick, it keeps the most promising, and the answer is a schedule that exists,
// beside a bound that none can beat.
package solve

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Operator is one stage of the chain.
type Operator struct {
	Ticks    int // that a task takes; at least 1
	Gives    int // partitions that a task gives; 0 for the last
	Resource int // of which it needs one slot
}

// Problem is a pipeline whose partitions all have one size.
type Problem struct {
	Operators []Operator
	Sources   int   // tasks of the first operator
	Slots     []int // of each resource
	Buffer    int   // partitions that the store holds
	// Pinned says that the input of a running task stays in the store until the task
	// ends; else it leaves when the task begins.
	Pinned bool
	// Width is the most states kept of a tick; 0 means 200,000, which takes less than
	// a gigabyte.
	Width int
	// Ticks is the length limit; 0 means four times the work of all tasks.
	Ticks int
}

// Answer is what the search found.
type Answer struct {
	Ticks   int  // of the shortest schedule found; 0 if there is none within the limit
	Optimum bool // nothing was cut, so that no schedule is shorter
	Bound   int  // no schedule is shorter than this
	States  int  // that were looked at
}

// state is a moment between two ticks. All counts are by operator.
type state struct {
	left    int     // source tasks that have not started
	queued  []int   // partitions that wait for each operator but the first
	running [][]int // tasks by the ticks that they still take, less one
	stalled []int   // tasks whose outputs wait
	held    []int   // partitions that these hold
}

// Solve searches for the shortest schedule.
func (p *Problem) Solve() Answer {
	width, limit := p.Width, p.Ticks
	if width == 0 {
		width = 200_000
	}
	if limit == 0 {
		limit = 4 * p.work()
	}
	first := p.start()
	answer := Answer{Optimum: true, Bound: p.bound(first)}
	layer := []*state{first}
	for tick := range limit + 1 {
		for _, s := range layer {
			if p.done(s) {
				answer.Ticks = tick
				if answer.Optimum {
					answer.Bound = tick
				}
				return answer
			}
		}
		layer = p.next(layer)
		answer.States += len(layer)
		if len(layer) > width {
			answer.Optimum = false
			layer = p.best(layer, width)
		}
	}
	answer.Optimum = false
	return answer
}

// work is the ticks of all tasks together.
func (p *Problem) work() (ticks int) {
	tasks := p.Sources
	for _, op := range p.Operators {
		ticks += tasks * op.Ticks
		tasks *= op.Gives
	}
	return ticks
}

func (p *Problem) start() *state {
	n := len(p.Operators)
	s := &state{left: p.Sources, queued: make([]int, n), stalled: make([]int, n), held: make([]int, n), running: make([][]int, n)}
	for i, op := range p.Operators {
		s.running[i] = make([]int, op.Ticks)
	}
	return s
}

// next are the states one tick later, each once.
func (p *Problem) next(layer []*state) []*state {
	seen := map[string]bool{}
	var later []*state
	for _, s := range layer {
		for _, started := range p.starts(s) {
			p.advance(started)
			if key := started.key(); !seen[key] {
				seen[key] = true
				later = append(later, started)
			}
		}
	}
	return later
}

// starts are the states that can be reached by starting tasks, none of them included.
func (p *Problem) starts(s *state) []*state {
	seen := map[string]bool{s.key(): true}
	all := []*state{s.clone()}
	for i := 0; i < len(all); i++ {
		for op := range p.Operators {
			if !p.ready(all[i], op) {
				continue
			}
			c := all[i].clone()
			if op == 0 {
				c.left--
			} else {
				c.queued[op]--
			}
			c.running[op][p.Operators[op].Ticks-1]++
			p.emit(c)
			if key := c.key(); !seen[key] {
				seen[key] = true
				all = append(all, c)
			}
		}
	}
	return all
}

func (p *Problem) ready(s *state, op int) bool {
	if op == 0 && s.left == 0 || op > 0 && s.queued[op] == 0 {
		return false
	}
	free := p.Slots[p.Operators[op].Resource]
	for i, o := range p.Operators {
		if o.Resource == p.Operators[op].Resource {
			free -= s.busy(i)
		}
	}
	return free > 0
}

// busy is how many slots an operator's tasks hold.
func (s *state) busy(op int) int {
	n := s.stalled[op]
	for _, tasks := range s.running[op] {
		n += tasks
	}
	return n
}

// advance lets one tick pass.
func (p *Problem) advance(s *state) {
	for op := range p.Operators {
		ended := s.running[op][0]
		copy(s.running[op], s.running[op][1:])
		s.running[op][len(s.running[op])-1] = 0
		if p.Operators[op].Gives > 0 {
			s.stalled[op] += ended
			s.held[op] += ended * p.Operators[op].Gives
		}
	}
	p.emit(s)
}

// emit moves what is held into the store while there is room, the operators nearest
// to the end first.
func (p *Problem) emit(s *state) {
	room := p.Buffer - p.stored(s)
	for op := len(p.Operators) - 2; op >= 0; op-- {
		moved := min(room, s.held[op])
		room -= moved
		s.held[op] -= moved
		s.queued[op+1] += moved
		if gives := p.Operators[op].Gives; gives > 0 {
			s.stalled[op] = (s.held[op] + gives - 1) / gives
		}
	}
}

// stored are the partitions in the store.
func (p *Problem) stored(s *state) (n int) {
	for op := 1; op < len(p.Operators); op++ {
		n += s.queued[op]
		if p.Pinned {
			n += s.busy(op) - s.stalled[op]
		}
	}
	return n
}

func (p *Problem) done(s *state) bool {
	if s.left > 0 {
		return false
	}
	for op := range p.Operators {
		if s.queued[op] > 0 || s.busy(op) > 0 {
			return false
		}
	}
	return true
}

// bound is how many ticks the state still takes at least: the remaining work of each
// resource, and after it the shortest way from it to the end.
func (p *Problem) bound(s *state) (ticks int) {
	work, tail := make([]int, len(p.Slots)), make([]int, len(p.Slots))
	for r := range tail {
		tail[r] = 1 << 30
	}
	tasks, after := s.left, 0
	for op, o := range p.Operators {
		tasks += s.queued[op]
		work[o.Resource] += tasks * o.Ticks
		running := s.stalled[op]
		for left, n := range s.running[op] {
			work[o.Resource] += n * (left + 1)
			running += n
		}
		tasks = (tasks+running-s.stalled[op])*o.Gives + s.held[op]
	}
	for op := len(p.Operators) - 1; op >= 0; op-- {
		o := p.Operators[op]
		tail[o.Resource] = min(tail[o.Resource], after)
		after += o.Ticks
	}
	for r := range work {
		if work[r] > 0 {
			ticks = max(ticks, (work[r]+p.Slots[r]-1)/p.Slots[r]+tail[r])
		}
	}
	return ticks
}

// best are the states that promise the shortest schedules: by bound, then by the
// work that is done.
func (p *Problem) best(layer []*state, width int) []*state {
	type ranked struct {
		s           *state
		bound, todo int
	}
	all := make([]ranked, len(layer))
	for i, s := range layer {
		all[i] = ranked{s, p.bound(s), p.todo(s)}
	}
	slices.SortStableFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.bound, b.bound), cmp.Compare(a.todo, b.todo))
	})
	kept := make([]*state, width)
	for i := range kept {
		kept[i] = all[i].s
	}
	return kept
}

// todo are the ticks of all tasks that have not started, and what the others have left.
func (p *Problem) todo(s *state) (ticks int) {
	tasks := s.left
	for op, o := range p.Operators {
		tasks += s.queued[op]
		ticks += tasks * o.Ticks
		running := 0
		for left, n := range s.running[op] {
			ticks += n * (left + 1)
			running += n
		}
		tasks = (tasks+running)*o.Gives + s.held[op]
	}
	return ticks
}

func (s *state) clone() *state {
	c := &state{left: s.left, queued: slices.Clone(s.queued), stalled: slices.Clone(s.stalled), held: slices.Clone(s.held), running: make([][]int, len(s.running))}
	for i := range s.running {
		c.running[i] = slices.Clone(s.running[i])
	}
	return c
}

func (s *state) key() string {
	k := binary.AppendUvarint(nil, uint64(s.left))
	for op := range s.running {
		k = binary.AppendUvarint(k, uint64(s.queued[op]))
		k = binary.AppendUvarint(k, uint64(s.held[op]))
		for _, n := range s.running[op] {
			k = binary.AppendUvarint(k, uint64(n))
		}
	}
	return string(k)
}
