package control

import "slices"

// The members of an earlier life come back to a planner that goes on: within a moment, in any
// order, and not all of them.

// regathers says whether the members of an earlier life are coming back: constructors know
// where its loaders are until all are here.
func (c *Core) regathers() bool { return c.cfg.Resumes && c.plan == nil }

// numberFor is the free number of a constructor, -1 if there is none: that of the buckets that
// it holds, that of its node, or the first.
func (c *Core) numberFor(m *constructor) int {
	all := c.members.constructors
	if h := m.held; h != nil && len(h.Acked) > 0 {
		if n := c.numberOf(int(h.Acked[0].Bucket)); all[n] == nil {
			return n
		}
	}
	if m.node != nil && !c.misplaced(m) {
		if n := int(*m.node) % len(all); all[n] == nil {
			return n
		}
	}
	return c.members.free()
}

// standAgain has a constructor serve the buckets again that it holds of numbers that nobody
// has.
func (c *Core) standAgain(m *constructor) {
	if m.held == nil || c.take.settled && c.plan != nil {
		return
	}
	for _, a := range m.held.Acked {
		n := c.numberOf(int(a.Bucket))
		if c.members.constructors[n] == nil && c.members.stands[n].in == nil {
			c.members.stands[n].in = m
		}
	}
}

// waitsForHolders keeps a constructor that holds nothing for a moment: those that do get the
// numbers that they had.
func (c *Core) waitsForHolders(ev ConstructorJoined) bool {
	t := &c.take
	if t.settled || !c.cfg.Resumes || c.failed != nil {
		return false
	}
	c.firstMember()
	holds, here := ev.Held != nil && len(ev.Held.Acked) > 0, 1+len(c.members.present())+len(t.late)
	if !holds {
		t.late = append(t.late, ev)
	}
	if here < c.cfg.Constructors {
		return !holds
	}
	t.settled = true
	if holds {
		c.addConstructor(ev)
	}
	c.addLate()
	return true
}

// firstMember notes when the first member came.
func (c *Core) firstMember() {
	if !c.take.counts {
		c.take.counts, c.take.since = true, c.now
	}
}

// waitedLong says that no member of an earlier life is waited for any more.
func (c *Core) waitedLong() bool { return c.take.counts && c.now-c.take.since >= holdTime }

// admitLate lets those in that waited long enough.
func (c *Core) admitLate() {
	if !c.take.settled && c.waitedLong() {
		c.take.settled = true
		c.addLate()
		c.raise(onMembers)
	}
}

func (c *Core) addLate() {
	late := c.take.late
	c.take.late = nil
	for _, ev := range late {
		c.addConstructor(ev)
	}
}

// dropLate forgets a constructor that left before it had a number.
func (t *takeover) dropLate(s Session) {
	t.late = slices.DeleteFunc(t.late, func(ev ConstructorJoined) bool { return ev.Session == s })
}

// indexLate has sources indexed by the loaders that are there, if a planner that goes on has
// waited long enough for the others.
func (c *Core) indexLate() {
	if c.cfg.Resumes && c.plan == nil && c.waitedLong() && !c.members.indexing && len(c.members.loaders) > 0 {
		c.members.indexing = true
		c.indexMissing()
	}
}
