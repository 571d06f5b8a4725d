package engine

import (
	"github.com/millrace-data/millrace/internal/engine/schedule"
	"github.com/millrace-data/millrace/internal/fault"
)

// A stage that gathers takes what several source tasks gave. These are one source then: they have one tree, are lost and
// given up together, and what is made of them is collected before the next ones. What is gathered stays in memory until
// the last of them has ended, so no pace of theirs brings room. Half of the limit is theirs that are collected first.

// group is how many of a run's source tasks belong together.
func (p *Pipeline) group(tasks int) int {
	switch gather := p.stages[p.gathers].Gather; gather {
	case 0:
		return 1
	case All:
		return max(tasks, 1)
	default:
		return gather
	}
}

// gather makes the task that takes all that the source's tasks gave, once they have ended.
func (e *Executor) gather(s *source) {
	if s.left > 0 {
		return
	}
	var in []*slot
	var first *node
	at := 0
	s.root.given(s.run.pipeline.gathers-1, func(n *node, i int) {
		if first == nil {
			first, at = n, i
		}
		in = append(in, n.slots[i])
	})
	if first != nil {
		e.again(first.below(at, in))
	}
}

// given calls f with each partition that tasks of a stage below n gave, as the task and its number there.
func (n *node) given(op int, f func(n *node, i int)) {
	for i, s := range n.slots {
		if n.op == op {
			f(n, i)
		} else if s.child != nil {
			s.child.given(op, f)
		}
	}
}

// gathered is how many bytes a source has in memory of what is gathered.
func (s *source) gathered() (bytes int64) {
	if s.run.pipeline.gathers == 0 {
		return 0
	}
	s.root.given(s.run.pipeline.gathers-1, func(n *node, i int) {
		if n.slots[i].part != nil {
			bytes += n.slots[i].bytes
		}
	})
	return bytes
}

// gatherer is the task of a source that takes what was gathered and waits to begin, nil if there is none.
func (s *source) gatherer() *node {
	p := s.run.pipeline
	if p.gathers == 0 {
		return nil
	}
	if n := s.root.open().maker(); n != nil && n.op == p.gathers && n.state == queued {
		return n
	}
	return nil
}

// decide asks the policy what to do for a pipeline. Where a stage gathers, what the source that is collected first can begin
// is asked for before all else, and within the whole limit.
func (e *Executor) decide(p *Pipeline) schedule.Decision {
	if first := e.first(); p.gathers > 0 && first != nil && first.run.pipeline == p {
		if d := schedule.Decide(e.snapshot(p, first)); d.Launch {
			return d
		}
	}
	s := e.snapshot(p, nil)
	s.Limit -= min(p.reserve, s.Limit/2)
	return schedule.Decide(s)
}

// unfit ends a run whose first source needs more than the limit for what it gathers. If that was gathered before, and is made again
// since something that came of it was lost, the rest of what came of it gives way: it is made again with it.
func (e *Executor) unfit(t *task) {
	s := t.node.src
	p := s.run.pipeline
	if s.left == 0 && t.node.op < p.gathers {
		var given []*slot
		s.root.given(p.gathers, func(n *node, i int) {
			if n.slots[i].held {
				given = append(given, n.slots[i])
			}
		})
		for _, slot := range given {
			e.loseSlot(p, slot)
		}
		if len(given) > 0 {
			return
		}
	}
	e.fail(s.run, fault.Userf("stage %q gathers source tasks %d to %d: what they gave (%d bytes), and %d bytes that stage %q asks for, do not fit the limit of %d bytes: gather fewer source tasks, or raise Options.Limit",
		p.stages[p.gathers].Name, s.number, s.number+len(s.tasks)-1, s.gathered(), t.asks, t.stage().Name, e.limit))
}
