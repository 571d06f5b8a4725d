package engine

import "slices"

// What came from what. A source task is the root of a tree, or several are that a later task takes together, below a root
// that stands for all: each task has slots, one for each partition that it gave, and a slot leads to the task that took it. The order of the tree is the order
// of the data. A tree is kept until all of it is collected, so that what is lost can be made again
// from the nearest input that is still there.

// run is the state of one Run. It belongs to the executor's loop.
type run struct {
	pipeline *Pipeline
	seq      int64
	number   int64
	sources  []*source
	first    int       // source that is being collected
	ready    [][]*node // of each stage, in the order of the data
	tasks    int       // goroutines that have not returned
	given    int64     // bytes that the collector has in hand
	wanting  bool      // the collector waits
	spilled  []*slot   // whose partitions are on the disk, or come back
	err      error     // that ended it
	answers  chan answer
	life     lifetime
}

// source is a source task with all that came of it, or those of a group that a stage gathers.
type source struct {
	run     *run
	number  int // of the first source task
	tasks   []Source
	root    *node    // of stage -1, whose slots lead to the source tasks
	loose   int      // slots that wait for neighbours
	left    int      // tasks before the stage that gathers that have not ended
	count   int      // of outputs collected from this tree
	digests []uint64 // of all that were ever collected, also from a tree before
	narrow  bool     // its tasks run one after the other
	barred  int      // it may start when more sources have ended than this, or when it is first
}

// node is a task, whether it waits, runs or has ended.
type node struct {
	src    *source
	task   *Source // nil: it takes partitions
	op     int
	path   []int32 // of slots, from the root
	in     []*slot // nil for a source
	bytes  int64   // of in
	slots  []*slot // that it gave
	done   int     // of them, from the first on: nothing below is left to collect
	ended  bool    // all slots are known
	state  state
	losses int // one after the other
}

// state is what an attempt at a node is at.
type state int

const (
	idle    state = iota // it has ended, or its input was not asked for yet
	queued               // it has its input
	running              //
	paused               // it was lost, and waits to be tried again
	blocked              // it waits for inputs that are made again
)

// slot is one partition that a task gave, and what became of it.
type slot struct {
	part   Partition // nil when it left the store
	file   Spilled   // on the disk, or on the way back
	move   *move     // to the disk or back, if it is on its way
	bytes  int64
	digest uint64
	held   bool // it is counted as waiting in the store
	lost   bool // it has to be made again
	stays  bool // in memory: the disk lost it
	worker *worker
	from   *node
	to     *node // that takes it, maybe with its neighbours
	child  *node // the same, if it is the first of them, until all of that is collected
}

func newRun(p *Pipeline, w Work) *run {
	number := 0
	r := &run{pipeline: p, seq: w.Seq, ready: make([][]*node, len(p.stages)), answers: make(chan answer, 2)}
	for group := range slices.Chunk(w.Sources, p.group(len(w.Sources))) {
		s := &source{run: r, number: number, tasks: group, barred: -1}
		s.plant()
		r.sources = append(r.sources, s)
		number += len(group)
	}
	return r
}

// plant makes the tree of a source that begins.
func (s *source) plant() {
	s.root = &node{src: s, op: -1, ended: true}
	s.count, s.loose, s.left = 0, 0, len(s.tasks)
	for i := range s.tasks {
		n := &node{src: s, task: &s.tasks[i], path: []int32{int32(i)}}
		s.root.slots = append(s.root.slots, &slot{from: s.root, to: n, child: n})
	}
}

// queue has the source tasks begin.
func (s *source) queue() {
	for _, root := range s.root.slots {
		s.run.pipeline.queue(root.child)
	}
}

// before orders tasks of one run and one stage by the data.
func (n *node) before(m *node) int {
	if n.src.number != m.src.number {
		return n.src.number - m.src.number
	}
	return slices.Compare(n.path, m.path)
}

// next is the first partition below n that was not collected, if it is there or on the disk, and whether all were.
func (n *node) next(last int) (s *slot, done bool) {
	for n.done < len(n.slots) {
		s := n.slots[n.done]
		switch {
		case n.op == last && s.part == nil && s.file == nil:
			return nil, false
		case n.op == last:
			return s, false
		case s.to == nil:
			return nil, false
		case s.child != nil:
			if below, done := s.child.next(last); !done {
				return below, false
			}
			s.child = nil
		}
		n.done++
	}
	return nil, n.ended
}

// open is the first task, in the order of the data, that has not ended; nil if all have.
func (n *node) open() *node {
	for _, s := range n.slots[n.done:] {
		if s.lost && s.to == nil {
			return n
		}
		if s.child != nil {
			if first := s.child.open(); first != nil {
				return first
			}
		}
	}
	if n.ended {
		return nil
	}
	return n
}

// next is the task of a source that all others of it wait for; nil if all have ended.
func (s *source) next() *node { return s.root.open().maker() }

// turn reports whether a task may start, or take more room, as far as its source goes.
func (n *node) turn() bool { return !n.src.narrow || n == n.src.next() }

// forgetInput lets go of what a task took.
func (n *node) forgetInput() {
	for _, s := range n.in {
		s.part = nil
	}
}

// maker is the task that n waits for: itself, unless an input of it is made again.
func (n *node) maker() *node {
	for n != nil && n.state == blocked {
		at := slices.IndexFunc(n.in, func(s *slot) bool { return s.lost })
		if at < 0 {
			break
		}
		n = n.in[at].from
	}
	return n
}

// each calls f with every slot of the tree that is still of use.
func (n *node) each(f func(*slot)) {
	for _, s := range n.slots[n.done:] {
		f(s)
		if s.child != nil {
			s.child.each(f)
		}
	}
}

// merging puts small neighbours of one stage's outputs together. What it puts together depends
// on the order of the data alone: it goes from the first slot on, and stops at the first that may still come.
type merging struct {
	op    int // whose outputs
	merge int64
	small []*slot
	first *node // that gave the first of small
	at    int   // its number there
	bytes int64
	take  func(first *node, at int, in []*slot)
}

// walk says whether all outputs below n are known.
func (g *merging) walk(n *node) bool {
	for i := n.done; i < len(n.slots); i++ {
		s := n.slots[i]
		switch {
		case n.op < g.op && s.to == nil:
			return false
		case n.op < g.op && s.child != nil:
			if !g.walk(s.child) {
				return false
			}
			if n.op < 0 { // what follows is of another source task
				g.flush()
			}
		case n.op == g.op && s.to != nil:
			g.flush()
		case n.op == g.op:
			if len(g.small) == 0 {
				g.first, g.at = n, i
			}
			g.small, g.bytes = append(g.small, s), g.bytes+s.bytes
			if 2*g.bytes >= g.merge {
				g.flush()
			}
		}
	}
	return n.ended
}

func (g *merging) flush() {
	if len(g.small) > 0 {
		g.take(g.first, g.at, g.small)
		g.small, g.bytes = nil, 0
	}
}

// below makes the task that takes some slots, of which n gave the first.
func (n *node) below(at int, in []*slot) *node {
	child := &node{src: n.src, op: n.op + 1, in: in, path: append(slices.Clone(n.path), int32(at))}
	if child.op < n.src.run.pipeline.gathers {
		n.src.left++
	}
	for _, s := range in {
		s.to = child
		child.bytes += s.bytes
	}
	in[0].child = child
	return child
}
