package control

import (
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
)

// Each process of a loader or a constructor draws a number as it starts: its instance. By it a
// process that comes back differs from another one that was given the same id, and perhaps the same
// address: two of these would replace each other for ever. The other one may also be the first one's
// successor, whose loss was not noticed yet. So it waits until that would have been, and is refused
// if the first one has been heard all that time. A member of a version without instances, where the
// number is 0, is no twin of any other.

// twinTime is how much longer than a silence takes to be noticed a twin waits.
const twinTime Millis = 1000

// defaultSuspect is how long that takes if Config.Suspect does not say it.
const defaultSuspect Millis = 2000

// tickCounts is the most of a tick that counts as waiting: in a planner that was stopped for longer
// nobody was heard meanwhile.
const tickCounts Millis = 500

// twin is a member that waits, as its id is another one's.
type twin struct {
	kind, id, address string
	session           Session
	instance          uint64
	joined            Event // what it is to begin with
	seen, waited      Millis
}

// isTwin keeps a member that joins if another process has its id.
func (c *Core) isTwin(t twin) bool {
	if c.failed != nil || c.firstOf(&t) == "" {
		return false
	}
	t.seen = c.now
	c.members.twins = append(c.members.twins, t)
	return true
}

// firstOf is the address of the process that has a twin's id, and is heard; "" if there is none.
func (c *Core) firstOf(t *twin) string {
	if t.kind == "loader" {
		for _, l := range c.members.loaders {
			if l.name == t.id && differ(l.instance, t.instance) && !l.silent {
				return l.address
			}
		}
		return ""
	}
	for _, m := range c.members.present() {
		if m.name == t.id && differ(m.instance, t.instance) && !m.silent && !m.ended {
			return m.address
		}
	}
	for _, m := range c.members.spares { // they are not told from others by Silent
		if m.name == t.id && differ(m.instance, t.instance) && !m.quiet {
			return m.address
		}
	}
	return ""
}

// differ says whether two members are known to be of two processes.
func differ(a, b uint64) bool { return a != b && a != 0 && b != 0 }

// judgeTwins lets time pass for those who wait.
func (c *Core) judgeTwins() {
	waiting := c.members.twins
	c.members.twins = nil
	for _, t := range waiting {
		t.waited += min(c.now-t.seen, tickCounts)
		t.seen = c.now
		switch first := c.firstOf(&t); {
		case first == "":
			c.applyMember(t.joined)
		case t.waited >= c.suspect()+twinTime:
			err := fault.Userf("%s %s at %s: another process with the id %s, at %s, is there: give each %s an --id of its own, or none", t.kind, t.id, t.address, t.id, first, t.kind)
			c.note(Warn, t.kind+" refused", t.kind, t.id, "err", err)
			c.emit(Refuse{t.session, err})
		default:
			c.members.twins = append(c.members.twins, t)
		}
	}
}

// dropTwin forgets one that left.
func (c *Core) dropTwin(s Session) {
	c.members.twins = slices.DeleteFunc(c.members.twins, func(t twin) bool { return t.session == s })
}

// suspect is how long a member says nothing before it is Silent.
func (c *Core) suspect() Millis {
	if c.cfg.Suspect > 0 {
		return c.cfg.Suspect
	}
	return defaultSuspect
}
