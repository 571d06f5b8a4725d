package control

import "slices"

// A rank that hears nothing of its constructor says so when it joins again. That is half of the
// evidence. The other half is that the constructor misses beats, too; or that another report
// follows, of a rank that is no further. Then its buckets go to others at once, if there are any,
// long before it is given up for its silence alone. To be wrong about it costs work: whoever serves
// a bucket gives the same bytes. A constructor that was replaced is spare when it comes back, for
// longer each time.

const (
	// reportCounts is how long the report of a rank counts.
	reportCounts Millis = 10_000
	// reportsApart is how far apart two reports are that say more than one: a process that was
	// starved for a moment answers the second call.
	reportsApart Millis = 1000
)

// reports are those of ranks about a constructor.
type reports struct {
	first, last Millis
	rank        Rank  // the first was of a rank of this bucket, of which that many steps were done
	acked       int64 // then
	any         bool
}

// replacements are the constructors that were replaced for reports or for their silence.
type replacements struct {
	of    map[string]*trust // by name and address
	paths trust             // that were doubted though the constructor was heard: it may be the ranks'
}

// deafTimes have a constructor that the planner alone hears be spare for a minute.
const deafTimes = 5

// maxReplaced are remembered.
const maxReplaced = 1024

// reported takes note that a constructor says nothing to a rank which joins again for that.
func (c *Core) reported(q Join) {
	if q.Silent == "" || c.plan == nil || int(q.Rank.DP) >= c.job.tree.Sizes().DP {
		return
	}
	m := c.constructorOf(q.Rank.DP)
	if m == nil || m.address != q.Silent {
		return // another one serves it by now
	}
	r, acked := &m.calls, c.acks.of[q.Rank.DP].Step
	if !r.any || c.now-r.last > reportCounts || r.rank.DP == q.Rank.DP && acked > r.acked {
		*r = reports{first: c.now, rank: q.Rank, acked: acked, any: true}
	}
	r.last = c.now
	c.replaceReported()
}

// quietMember takes note of a constructor that misses beats, or is heard again.
func (c *Core) quietMember(ev Quiet) {
	if m := c.members.anyConstructor(ev.Session); m != nil {
		m.quiet = !ev.Ended
	}
}

// replaceReported ends the sessions of constructors that say nothing to ranks, where others can
// serve these.
func (c *Core) replaceReported() {
	if c.plan == nil || c.failed != nil || c.take.reading {
		return
	}
	for _, m := range c.members.present() {
		r, paths := &m.calls, &c.members.replaced.paths
		if !r.any || m.ended || c.now-r.last > reportCounts || !c.replaceable(m) {
			continue
		}
		switch deaf := r.last-r.first >= reportsApart && (paths.times == 0 || c.now >= paths.until); {
		case m.quiet || m.silent:
		case deaf:
			paths.why = ""
			paths.doubt(c.now, "a rank heard nothing of a constructor that the planner hears")
		default:
			continue
		}
		c.note(Warn, "a constructor says nothing to its ranks: others serve them", "constructor", m.name, "address", m.address, "heard", !m.quiet, "reported_by", r.rank.String())
		c.endSilent(m)
	}
}

// replaceable says whether others can serve the ranks of a constructor.
func (c *Core) replaceable(m *constructor) bool {
	if slices.ContainsFunc(c.members.spares, c.fit) {
		return true
	}
	return c.cfg.Absence > 0 && slices.ContainsFunc(c.members.present(), func(x *constructor) bool {
		return x != m && x.heard() && x.held == nil
	})
}

// heard says whether nothing is known against a constructor.
func (m *constructor) heard() bool { return !m.quiet && !m.silent && !m.ended }

// fit says whether a spare constructor may have a number.
func (c *Core) fit(m *constructor) bool { return m.heard() && c.now >= m.until }

// burden is the number of buckets of a constructor; of one that is not heard, more than any other
// has.
func (c *Core) burden(m *constructor) int {
	n := len(c.bucketsOf(m))
	if !m.heard() {
		n += c.job.tree.Sizes().DP
	}
	return n
}

// onTrial says whether a constructor that comes back is spare for a while: it was replaced, and
// others are there.
func (c *Core) onTrial(m *constructor) bool {
	t := c.members.replaced.of[m.name+" "+m.address]
	if t == nil || len(c.members.present()) == 0 || c.plan == nil || c.failed != nil {
		return false
	}
	m.until = c.now + regain<<min(t.times-1, 10)
	return true
}

// noteReplaced remembers a constructor whose session was ended for its silence.
func (c *Core) noteReplaced(m *constructor) {
	of := c.members.replaced.of
	for key, t := range of {
		if c.now-t.since >= remember {
			delete(of, key)
		}
	}
	if len(of) >= maxReplaced {
		clear(of)
	}
	key := m.name + " " + m.address
	if of[key] == nil {
		of[key] = &trust{}
	}
	of[key].why = ""
	if m.heard() { // by the planner alone: what is between it and its ranks does not mend in seconds
		of[key].times = max(of[key].times, deafTimes)
	}
	of[key].doubt(c.now, "it was replaced")
}

// seatSpares gives numbers that nobody has to spare constructors that are fit; to any, if no
// constructor has one.
func (c *Core) seatSpares() {
	for c.failed == nil && !c.take.reading && len(c.members.spares) > 0 && c.members.free() >= 0 {
		i := slices.IndexFunc(c.members.spares, func(m *constructor) bool { // whose node's number nobody has
			n := c.home(m)
			return c.fit(m) && n >= 0 && c.members.constructors[n] == nil
		})
		if i < 0 {
			i = slices.IndexFunc(c.members.spares, c.fit)
		}
		if i < 0 && len(c.members.present()) == 0 {
			i = max(slices.IndexFunc(c.members.spares, (*constructor).heard), 0)
		}
		if i < 0 {
			return
		}
		m := c.members.spares[i]
		c.members.spares = slices.Delete(c.members.spares, i, i+1)
		c.serve(m, c.numberFor(m))
		c.note(Info, "a spare constructor serves ranks", "constructor", m.name, "address", m.address, "buckets", m.buckets)
		if c.plan != nil {
			c.resend(m)
		}
	}
}
