package fleet

import "time"

const (
	// firstShort is how long fewer members may be there than were asked for before the command is run again for them: the
	// platform may start a member again by itself, and a new one joins within that time. Ranks wait for 40 s where none is there.
	firstShort = 15 * time.Second
	// lastShort is the longest time between two runs for members that do not come: they may wait for a machine.
	lastShort = 10 * time.Minute
)

// short is that fewer members of a role are there than were asked for.
type short struct {
	since time.Time     // it is so, or the command was run
	pause time.Duration // until the next run
	due   bool          // the command is to be run, for what it has done before
}

// Joined implements Fleet: the command is run again for members that were there and are lost, or never came.
func (c *Command) Joined(role Role, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, s := c.wanted[role], c.short[role]
	switch {
	case n >= w.count:
		delete(c.short, role)
	case s == nil:
		c.short[role] = &short{since: time.Now(), pause: firstShort}
	case !s.due && time.Since(s.since) >= s.pause:
		s.due = true
		c.log.Warn("fewer members are there than were asked for: the command that scales the role is run again", "role", string(role), "count", w.count, "joined", n, "seconds", int(s.pause.Seconds()))
		nudge(c.token)
	}
}

// ran notes that the command was run. The lock is held.
func (c *Command) ran(role Role) {
	s := c.short[role]
	if s == nil {
		return
	}
	if s.due {
		s.pause = min(2*s.pause, lastShort)
	}
	s.due, s.since = false, time.Now()
}
