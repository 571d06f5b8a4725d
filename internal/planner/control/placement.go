package control

import (
	"cmp"
	"maps"
	"slices"

	"github.com/millrace-data/millrace/internal/placement"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

func compareBlocks(a, b block) int {
	return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.seq, b.seq))
}

// loaderOf says which loader reads a block; nil if none is there.
func (c *Core) loaderOf(b block) *loader {
	if len(c.members.places) == 0 {
		return nil
	}
	return c.members.places[c.placeOf(b)].loader
}

// placeOf says whose block a block is: that of the loader that has it. One that nobody has is
// read by the place that it is dealt to, or by another if that one is not open.
func (c *Core) placeOf(b block) int {
	m := &c.members
	if l := c.data.sources[b.source].blocks[b.seq].by; m.reads(l) {
		return l.place
	}
	of := c.placesOf(b.source)
	at := of[b.seq%int64(len(of))]
	if m.open[at] {
		return at
	}
	if other := placement.Deal(uint32(b.source), uint64(b.seq), m.open); other != placement.None {
		return other
	} // all are in doubt: whoever is there is asked
	if m.places[at].loader == nil {
		at = max(slices.IndexFunc(m.places, func(p place) bool { return p.loader != nil }), 0)
	}
	return at
}

// reads says whether a loader has a place that is open.
func (m *members) reads(l *loader) bool { return l != nil && l.place != noPlace && m.open[l.place] }

// any is a loader that reads, or one that would if there is none; nil if no loader is there.
func (m *members) any() *loader {
	if i := slices.Index(m.open, true); i >= 0 {
		return m.places[i].loader
	}
	if len(m.loaders) > 0 {
		return m.loaders[0]
	}
	return nil
}

// Block says which place of the placement a block of a step comes from, and its
// checksum; 0 if that is not known.
func (c *Core) Block(source int32, seq int64) (loader int, sum uint64) {
	if len(c.members.places) > 0 {
		loader = c.placeOf(block{source, seq})
	}
	return loader, c.data.sources[source].blocks[seq].sum
}

// readAgain has the blocks read again that a loader had which is lost or in doubt, those that
// are needed first before others; and by shadows, if these are hot, what they lack of the
// places that they stand by for.
func (c *Core) readAgain() {
	var lost, missing []block
	for i := range c.data.sources {
		for seq, x := range c.data.sources[i].blocks {
			switch {
			case !c.members.reads(x.by):
				lost = append(lost, block{int32(i), seq})
			case c.cfg.Hot && x.copy != c.members.places[x.by.place].shadow:
				missing = append(missing, block{int32(i), seq})
			}
		}
	}
	c.sortByNeed(lost)
	for _, b := range lost {
		c.readInPlace(b)
	}
	c.sortByNeed(missing)
	for _, b := range missing {
		c.mirror(b)
	}
}

// readInPlace has a block read by the loader that constructors ask for it from now on. A
// shadow that has it need not.
func (c *Core) readInPlace(b block) {
	l := c.loaderOf(b)
	if !c.members.reads(l) {
		return
	}
	blocks := c.data.sources[b.source].blocks
	x := blocks[b.seq]
	if x.copy != l {
		c.emit(Read{l.session, b.source, b.seq})
		c.members.again++
	}
	x.by = l
	blocks[b.seq] = x
	c.mirror(b)
}

// mirror has the shadow of a block's loader read it too, if shadows are hot.
func (c *Core) mirror(b block) {
	blocks := c.data.sources[b.source].blocks
	x := blocks[b.seq]
	if !c.cfg.Hot || !c.members.reads(x.by) {
		return
	}
	before := x.copy
	x.copy = c.members.places[x.by.place].shadow
	x.copied = x.copied && x.copy == before
	blocks[b.seq] = x
	if x.copy != nil {
		c.emit(Read{x.copy.session, b.source, b.seq})
	}
}

// sortByNeed sorts blocks by how far they are ahead of those that are drawn from.
func (c *Core) sortByNeed(blocks []block) {
	ahead := func(b block) int64 {
		if f := c.members.floors.bySource; int(b.source) < len(f) {
			return b.seq - f[b.source].before
		}
		return b.seq
	}
	slices.SortFunc(blocks, func(a, b block) int { return cmp.Or(cmp.Compare(ahead(a), ahead(b)), compareBlocks(a, b)) })
}

// readersChanged says how much of each source loaders can read at a time, after a
// loader came or went, or a source joined.
func (c *Core) readersChanged() {
	m := &c.members
	if c.plan == nil || len(m.loaders) == 0 {
		return
	}
	var ev plan.Readers
	for i := range c.sources.indexed {
		of := c.placesOf(int32(i))
		r := plan.Reader{Group: c.groupOf(of[0])}
		for _, at := range of {
			l := m.places[at].loader
			if !m.reads(l) {
				l = m.any()
			}
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
	over := func(b block) bool { return b.seq < f.bySource[b.source].before } // no loader reads it any more
	maps.DeleteFunc(c.members.wanted, func(b block, _ *loader) bool { return over(b) })
	maps.DeleteFunc(c.members.unread, func(b block, _ []*loader) bool { return over(b) })
	n := len(loaders)
	if n == 0 {
		return
	}
	due := map[*loader]bool{}
	for _, r := range released {
		for _, i := range c.placesOf(r.Source) {
			p := &c.members.places[i]
			due[p.loader], due[p.shadow] = true, c.cfg.Hot
		}
	}
	for k := range min(releaseFanout, n) {
		due[loaders[(int(f.changes%uint64(n))*releaseFanout+k)%n]] = true
	}
	for _, l := range loaders {
		if due[l] {
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
