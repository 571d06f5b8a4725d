package control

import (
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/mesh"
)

// Each number below the job's constructors has buckets: those that it has in turn, or those of a node. Whoever has the number serves them;
// while nobody has it, another constructor does beside its own, once the one that left has
// been away for a while. Constructors beyond the job's number are spare: the next number that
// becomes free is theirs, at once. Who serves a bucket changes no byte of it.

// maxSpares are kept; one more is refused.
const maxSpares = 256

// startTime is how long a number may have nobody after the job started, while it never had.
const startTime Millis = 10_000

// stand is who stands in for a number that nobody has.
type stand struct {
	in    *constructor // nil: nobody
	had   bool         // somebody has had the number
	since Millis       // nobody has had it; if it was had
}

// free is the next number to be had: one whose buckets nobody serves, if there is one; -1 if
// all are had.
func (m *members) free() int {
	for number, x := range m.constructors {
		if x == nil && m.stands[number].in == nil {
			return number
		}
	}
	return slices.Index(m.constructors, nil)
}

// addSpare keeps a constructor that is one too many, with a job and no ranks.
func (c *Core) addSpare(m *constructor) {
	s := &c.members.spares
	if len(*s) >= maxSpares {
		c.emit(Refuse{m.session, fault.Userf("constructor %s is one too many: the job has %d, and %d more are spare; stop some",
			m.name, len(c.members.constructors), maxSpares)})
		return
	}
	m.held, m.has = nil, 0 // it lets go of all that it kept
	*s = append(*s, m)
	c.note(Info, "constructor is spare: it takes the place of the next one that is lost", "constructor", m.name, "address", m.address)
	if c.failed == nil {
		c.dismiss(m)
	}
}

// replace ends the earlier session of a constructor that comes back before its loss is noticed:
// it finds its number free.
func (c *Core) replace(ev ConstructorJoined) {
	for _, m := range c.members.present() {
		if ev.Held == nil || m.name != ev.Name || m.address != ev.Address {
			continue
		}
		err := fault.Lostf("it came back with another session")
		c.members.dropConstructor(m.session)
		c.unsend(m)
		c.noteLeft("constructor", m.name, err)
		c.free(m)
		c.emit(Refuse{m.session, err})
		c.raise(onMembers | onRestarted)
		return
	}
}

// dismiss takes all ranks off a constructor, those of an earlier session among them.
func (c *Core) dismiss(m *constructor) {
	m.buckets = nil
	c.send(Brief{m.session, nil, c.job.tree})
	c.send(Restart{To: m.session, Generation: c.job.generation})
}

// dropSpare forgets a spare constructor; false if there is no such session.
func (c *Core) dropSpare(ev ConstructorLeft) bool {
	s := &c.members.spares
	i := slices.IndexFunc(*s, func(m *constructor) bool { return m.session == ev.Session })
	if i < 0 {
		return false
	}
	c.unsend((*s)[i])
	c.noteLeft("constructor", (*s)[i].name, ev.Err)
	*s = slices.Delete(*s, i, i+1)
	return true
}

// serve gives a constructor a number. Whoever stood in gives the buckets back: its ranks
// hear that they have to join again.
func (c *Core) serve(m *constructor, number int) {
	stand := &c.members.stands[number]
	before := stand.in
	m.number, stand.in, stand.had = number, nil, true
	m.calls = reports{}
	c.members.constructors[number] = m
	c.raise(onMembers)
	c.brief(m)
	switch {
	case before == nil || before == m || !c.dealt(number):
	case c.plan == nil || before.held != nil || c.failed != nil: // it hears later where the job goes on, or has heard that it does not
		c.brief(before)
	default:
		c.extend(before)
	}
}

// free notes that a constructor left: nobody serves its ranks, nor those for whom it stood in.
func (c *Core) free(m *constructor) {
	for number := range c.members.stands {
		if s := &c.members.stands[number]; s.in == m {
			s.in, s.since = nil, c.now
		}
	}
	c.members.stands[m.number].since = c.now
	if m.ended { // nobody waits for it to come back
		c.members.stands[m.number].since = c.now - c.cfg.Absence
	}
}

// vacate frees the numbers of a constructor that left, for spare ones if there are any, rather one
// of its node.
func (c *Core) vacate(m *constructor) {
	c.free(m)
	c.goHome() // one of its node may have had to take another number
	i := c.spareFor(m.number)
	if i < 0 || c.failed != nil || c.members.constructors[m.number] != nil {
		return
	}
	spare := c.members.spares[i]
	c.members.spares = slices.Delete(c.members.spares, i, i+1)
	c.note(Warn, "a spare constructor takes the place of one that was lost", "constructor", spare.name, "address", spare.address, "lost", m.name)
	c.serve(spare, m.number)
	if c.plan != nil {
		c.resend(spare)
	}
}

// standIn has others serve the buckets of numbers that nobody has had for a while.
func (c *Core) standIn() {
	if c.plan == nil || c.failed != nil || c.cfg.Absence == 0 || c.take.reading {
		return
	}
	grown := map[*constructor]bool{}
	for number := range c.members.stands {
		s := &c.members.stands[number]
		if s.in != nil || c.members.constructors[number] != nil || !c.overdue(s) {
			continue
		}
		if s.in = c.leastLoaded(); s.in == nil {
			return
		}
		if !c.dealt(number) { // it has no buckets on this mesh
			c.raise(onMembers) // a rank of the mesh before may wait
			continue
		}
		grown[s.in] = true
		c.note(Warn, "a constructor serves the ranks of one that is lost, beside its own", "constructor", s.in.name, "address", s.in.address, "number", number)
	}
	for _, m := range c.members.present() {
		if grown[m] {
			c.raise(onMembers)
			c.extend(m)
		}
	}
}

// overdue says whether a number was free for long enough.
func (c *Core) overdue(s *stand) bool {
	if s.had {
		return c.now-s.since >= c.cfg.Absence
	}
	if s.since == 0 {
		s.since = c.now // the job has started
	}
	return c.now-s.since >= max(startTime, c.cfg.Absence)
}

// leastLoaded is the constructor with the fewest buckets, of those the first, and rather one that
// is heard; nil if there is none.
func (c *Core) leastLoaded() (least *constructor) {
	fewest := 0
	for _, m := range c.members.present() {
		if n := c.burden(m); least == nil || n < fewest {
			least, fewest = m, n
		}
	}
	return least
}

// extend tells a constructor of the buckets that it serves from now on, and sends it all steps
// under way: they are built with the rows of all of them. The generation goes on.
func (c *Core) extend(m *constructor) {
	c.brief(m)
	acked := c.plan.Acked()
	c.send(Entered{m.session, c.roster.joins})
	c.send(Restart{To: m.session, Generation: c.job.generation, NextStep: acked, Moved: c.job.moved, Continues: true})
	c.sendSteps(m, acked)
}

// bucketsOf are the DP ranks that a constructor serves, by rising number.
func (c *Core) bucketsOf(m *constructor) (buckets []uint32) {
	for d := range c.job.tree.Sizes().DP {
		if c.constructorOf(uint32(d)) == m {
			buckets = append(buckets, uint32(d))
		}
	}
	return buckets
}

// numberOf is the number that a DP rank belongs to: that of the node of its first rank, if nodes are known.
// A rank beyond the mesh is of a mesh before.
func (c *Core) numberOf(dp int) int {
	numbers := len(c.members.constructors)
	if node := c.nodeOf(dp); node >= 0 {
		return node % numbers
	}
	return dp % numbers
}

// nodeOf is the node of the first rank of a DP rank; -1 if that is not known.
func (c *Core) nodeOf(dp int) int {
	if c.cfg.NodeRanks == 0 {
		return -1
	}
	first, err := c.job.tree.Rank(mesh.Coordinates{DP: dp})
	if err != nil {
		return -1
	}
	return first / c.cfg.NodeRanks
}

// dealt says whether a number has buckets on this mesh.
func (c *Core) dealt(number int) bool {
	for d := range c.job.tree.Sizes().DP {
		if c.numberOf(d) == number {
			return true
		}
	}
	return false
}
