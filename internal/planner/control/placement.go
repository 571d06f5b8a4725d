package control

import (
	"cmp"
	"maps"

	"github.com/millrace-data/millrace/internal/planner/plan"
)

func compareBlocks(a, b block) int {
	return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.seq, b.seq))
}

// loaderOf says which loader reads a block. Sources are dealt to loaders; if
// there are more loaders than sources, the loaders of a source share its blocks.
// Any loader could read any block, so the answer affects speed only.
func (c *Core) loaderOf(b block) *loader { return c.members.loaders[c.loaderIndex(b)] }

func (c *Core) loaderIndex(b block) int {
	first, step, n := c.loadersOf(b.source)
	return first + step*int(b.seq%int64(n))
}

// loadersOf returns the loaders of a source: first, first+step, ..., n of them.
func (c *Core) loadersOf(source int32) (first, step, n int) {
	loaders, sources := len(c.members.loaders), len(c.sources.indexed)
	first = int(source) % loaders
	return first, sources, (loaders - first + sources - 1) / sources
}

// Block says which loader of the placement a block of a step comes from, and its
// checksum; 0 if that is not known.
func (c *Core) Block(source int32, seq int64) (loader int, sum uint64) {
	if len(c.members.loaders) > 0 {
		loader = c.loaderIndex(block{source, seq})
	}
	return loader, c.data.sources[source].blocks[seq]
}

// readersChanged says how much of each source loaders can read at a time, after a
// loader came or went, or a source joined.
func (c *Core) readersChanged() {
	if c.plan == nil || len(c.members.loaders) == 0 {
		return
	}
	var ev plan.Readers
	for i := range c.sources.indexed {
		first, step, n := c.loadersOf(int32(i))
		r := plan.Reader{Group: first}
		for k := range n {
			l := c.members.loaders[first+k*step]
			r.Blocks += l.workers
			r.Memory += l.buffer
		}
		ev.Of = append(ev.Of, r)
	}
	c.tell(ev)
}

// floors are the blocks that nobody needs any more: all before a number, by source.
type floors struct {
	changes  uint64 // so far: each may move the floors of many sources
	bySource []floor
}

type floor struct {
	before int64
	since  uint64 // the change that moved it last
}

// releaseFanout is how many loaders, beside those that read the sources, hear of each
// change of floors. Any loader may hold a block of any source, since it answers where
// another one does not, but that is rare, and to wake hundreds of processes at
// each step takes longer than to plan it.
const releaseFanout = 16

// release lets loaders let go of blocks: those of the sources at once, the others in
// turn.
func (c *Core) release(released []plan.Release) {
	f, loaders := &c.members.floors, c.members.loaders
	f.move(released, len(c.sources.specs))
	c.data.release(released)
	c.sources.release(released)
	maps.DeleteFunc(c.members.wanted, func(b block, _ *loader) bool { // no loader reads it any more
		return b.seq < f.bySource[b.source].before
	})
	n := len(loaders)
	if n == 0 {
		return
	}
	due := make([]bool, n)
	for _, r := range released {
		first, step, _ := c.loadersOf(r.Source)
		for i := first; i < n; i += step {
			due[i] = true
		}
	}
	for k := range min(releaseFanout, n) {
		due[(int(f.changes%uint64(n))*releaseFanout+k)%n] = true
	}
	for i, l := range loaders {
		if due[i] {
			r := f.movedSince(l.floors)
			r.To, l.floors = l.session, f.changes
			c.emit(r)
		}
	}
}

// move notes the floors of some sources.
func (f *floors) move(released []plan.Release, sources int) {
	f.changes++
	for len(f.bySource) < sources {
		f.bySource = append(f.bySource, floor{})
	}
	for _, r := range released {
		f.bySource[r.Source] = floor{r.Before, f.changes}
	}
}

// forget forgets all floors, when the job goes on from another position: blocks that are
// wanted from there may be below them.
func (f *floors) forget() { f.bySource = nil }

// movedSince returns the floors that moved after a change.
func (f *floors) movedSince(change uint64) (r Release) {
	for source, x := range f.bySource {
		if x.since > change {
			r.Source, r.Before = append(r.Source, int32(source)), append(r.Before, x.before)
		}
	}
	return r
}
