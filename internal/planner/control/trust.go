package control

import (
	"cmp"
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
)

// A member that says nothing, or is far slower than the others while ranks wait, is suspect:
// it keeps its session, and others are asked in its place. Trust decides who is asked, never
// what a batch holds, so to be wrong about it costs time and changes no byte.

const (
	// regain is how long a member that was suspect has to be heard before it is trusted
	// again, twice as long each time up to mostRegain.
	regain     Millis = 2000
	mostRegain Millis = 5 * 60_000
	// remember is how long a member has to be trusted for its earlier doubts to be forgotten.
	remember Millis = 10 * 60_000
	// giveUp is how long after it became suspect the session of a constructor ends whose
	// ranks another one can serve, and giveUpLast that of the last one: it may come back.
	giveUp     Millis = 1500
	giveUpLast Millis = 10_000
	// lookEvery is how often the blocks that loaders were asked for are looked at.
	lookEvery Millis = 500
)

// trust is what the core thinks of a member. The zero value is trust.
type trust struct {
	why    string // it is suspect; "" if it is not
	silent bool   // it says nothing
	since  Millis // it is suspect, or is not any more
	until  Millis // it stays suspect until then at least
	times  int    // that it became suspect, of late
	ended  bool   // its session was ended for it
}

// doubt makes a member suspect; it says whether it was not before.
func (t *trust) doubt(now Millis, why string) (news bool) {
	news = t.why == ""
	if news && t.times > 0 && now-t.since >= remember {
		t.times = 0
	}
	if news {
		t.since = now
		t.times++
	}
	t.why, t.until = why, now+min(regain<<min(t.times-1, 10), mostRegain)
	return news
}

// regained trusts a member again whose time is over; it says whether it does.
func (t *trust) regained(now Millis) bool {
	if t.why == "" || t.silent || now < t.until {
		return false
	}
	t.why, t.since = "", now
	return true
}

// silentMember takes note of a member that says nothing.
func (c *Core) silentMember(ev Silent) {
	why := fmt.Sprintf("it has said nothing for %v", ev.For)
	if l := c.members.loader(ev.Session); l != nil {
		l.silent = true
		c.doubtLoader(l, why)
	}
	if m := c.members.anyConstructor(ev.Session); m != nil {
		m.silent = true
		if m.doubt(c.now, why) {
			c.note(Warn, "constructor is suspect", "constructor", m.name, "address", m.address, "reason", why)
		}
	}
}

// heardMember takes note of a member that speaks again.
func (c *Core) heardMember(ev Heard) {
	for _, t := range []*trust{c.members.loader(ev.Session).trusted(), c.members.anyConstructor(ev.Session).trusted()} {
		if t != nil && t.silent {
			t.silent = false
			t.doubt(c.now, "it had said nothing for a while, and has to be heard for some time")
		}
	}
}

func (l *loader) trusted() *trust {
	if l == nil {
		return nil
	}
	return &l.trust
}

func (m *constructor) trusted() *trust {
	if m == nil {
		return nil
	}
	return &m.trust
}

// doubtLoader makes a loader suspect, and gives its place or its blocks to others.
func (c *Core) doubtLoader(l *loader, why string) {
	if !l.doubt(c.now, why) {
		return
	}
	c.note(Warn, "loader is suspect, others are asked in its place", "loader", l.name, "address", l.address, "reason", why)
	c.rearrange()
	if c.members.suspects() == len(c.members.loaders) {
		return // there is nobody else
	}
	c.sources.forgetLookups()
	c.raise(onFiles)
	c.indexMissing()
	c.start()
}

// sound says whether a loader is not suspect.
func (l *loader) sound() bool { return l.why == "" }

// suspects is the number of loaders that are suspect.
func (m *members) suspects() (n int) {
	for _, l := range m.loaders {
		if !l.sound() {
			n++
		}
	}
	return n
}

// judge lets time pass for those who are suspect.
func (c *Core) judge() {
	again := false
	for _, l := range c.members.loaders {
		if l.regained(c.now) {
			again = true
			c.note(Info, "loader is trusted again", "loader", l.name, "address", l.address)
		}
	}
	if again {
		c.rearrange()
	}
	for _, m := range c.members.allConstructors() {
		if m.regained(c.now) {
			c.note(Info, "constructor is trusted again", "constructor", m.name, "address", m.address)
		}
	}
	for _, m := range c.members.present() {
		if m.silent && !m.ended && c.now-m.since >= c.patience(m) {
			c.endSilent(m)
		}
	}
}

// endSilent ends the session of a constructor whose ranks others serve.
func (c *Core) endSilent(m *constructor) {
	c.noteReplaced(m)
	m.ended = true
	c.emit(Refuse{m.session, fault.Lostf("constructor %s at %s has said nothing for too long: others serve its ranks, and it may join again", m.name, m.address)})
}

// patience is how long the session of a suspect constructor goes on.
func (c *Core) patience(m *constructor) Millis {
	for _, other := range c.members.present() {
		if other != m && !other.silent {
			return cmp.Or(c.cfg.GiveUp, giveUp)
		}
	}
	return max(c.cfg.GiveUp, giveUpLast)
}
