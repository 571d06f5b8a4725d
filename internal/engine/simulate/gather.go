package simulate

import "github.com/millrace-data/millrace/internal/engine/schedule"

// gathering is what waits for a stage that takes what several source tasks gave. As in the executor, the group that comes first
// may use all of the limit, and those behind it half.
type gathering struct {
	op     int // 0: no stage gathers
	size   int // source tasks of a group
	groups []group
	first  int // group that was not gathered yet
}

// group is the outputs of some source tasks.
type group struct {
	left  int // tasks before the stage that have not ended
	bytes int64
	over  bool
}

func newGathering(w *Workload) (g gathering) {
	for op := range w.Stages {
		if w.Stages[op].Gather == 0 {
			continue
		}
		g.op, g.size = op, w.Stages[op].Gather
		for first := 0; first < w.Sources; first += g.size {
			g.groups = append(g.groups, group{left: min(g.size, w.Sources-first)})
		}
	}
	return g
}

// takes notes the input of a task of a stage, and reports whether it is kept until all of its group is there.
func (g *gathering) takes(op int, l Lineage) bool {
	if op > g.op {
		return false
	}
	of := &g.groups[l.Source/g.size]
	if op < g.op {
		of.left++
		return false
	}
	of.bytes += l.In
	return true
}

// ended notes that a task has, and returns the input of the one that gathers if it was the last of its group.
func (g *gathering) ended(op int, l Lineage) (in Lineage, ready bool) {
	if op > g.op || g.op == 0 {
		return in, false
	}
	of := &g.groups[l.Source/g.size]
	if op < g.op {
		of.left--
		first := l.Source / g.size * g.size
		in, ready = Lineage{Source: first}.below(first, 0).below(0, of.bytes), of.left == 0 && of.bytes > 0
	}
	of.over = of.over || op == g.op || of.left == 0 && of.bytes == 0
	for g.first < len(g.groups) && g.groups[g.first].over {
		g.first++
	}
	return in, ready
}

// later reports whether a task belongs to a group behind the first.
func (g *gathering) later(l Lineage) bool { return g.op > 0 && l.Source/g.size > g.first }

// within halves the limit, if it is to, until the result is called.
func (r *run) within(half bool) (end func()) {
	if !half {
		return func() {}
	}
	all := r.s.Limit
	r.s.Limit -= all / 2
	return func() { r.s.Limit = all }
}

// ask asks the policy, where a stage gathers for the first group alone before all others.
func (r *run) ask() schedule.Decision {
	r.res.Decisions++
	if r.gathers.op == 0 {
		return r.cfg.Policy(&r.s)
	}
	queued := make([]int, len(r.queues))
	for op := range r.queues {
		o := &r.s.Operators[op]
		if queued[op] = o.Queued; o.Queued > 0 && r.gathers.later(r.queues[op][0]) {
			o.Queued = 0
		}
	}
	d := r.cfg.Policy(&r.s)
	for op := range r.queues {
		r.s.Operators[op].Queued = queued[op]
	}
	if d.Launch {
		return d
	}
	defer r.within(true)()
	return r.cfg.Policy(&r.s)
}
