package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/planner/plan"
)

// acks are how far the buckets of this generation are.
type acks struct {
	of    map[uint32]Acked  // by bucket
	count map[int64]int     // buckets at a step
	least int64             // no bucket is at a step before it
	joins map[uint32]uint64 // by bucket, the last join so far when it came there
}

func newAcks() acks {
	return acks{of: map[uint32]Acked{}, count: map[int64]int{}, joins: map[uint32]uint64{}}
}

// put notes how far a bucket is; join is the last one so far.
func (a *acks) put(x Acked, join uint64) {
	a.joins[x.Bucket] = join
	if before, known := a.of[x.Bucket]; known {
		if a.count[before.Step]--; a.count[before.Step] == 0 {
			delete(a.count, before.Step)
		}
	}
	if a.of[x.Bucket] = x; len(a.of) == 1 {
		a.least = x.Step
	}
	a.count[x.Step]++
	a.least = min(a.least, x.Step)
}

// slowest is the step of the slowest of n buckets that are no further than `limit`; ok is
// false while not all of them are known.
func (a *acks) slowest(n int, limit int64) (step int64, ok bool) {
	if len(a.of) < n {
		return 0, false
	}
	for a.count[a.least] == 0 && a.least < limit {
		a.least++
	}
	return a.least, true
}

// ackedBy takes how far a bucket is. What no bucket of the job can say is passed over: its step would be waited for.
func (c *Core) ackedBy(ev Acked) {
	if ev.Generation != c.job.generation || c.plan == nil || int(ev.Bucket) >= c.job.tree.Sizes().DP || ev.Step < 0 {
		return
	}
	c.acks.put(ev, c.roster.joins)
}

// advance moves the job's acknowledged position to that of the slowest bucket, as far as
// the digests go: a planner that takes this one's place goes on from a position that all
// ranks have reached, and needs the chain value there.
func (c *Core) advance() {
	for c.plan != nil && c.failed == nil {
		step, ok := c.acks.slowest(c.job.tree.Sizes().DP, c.plan.Planned())
		digested, _ := c.plan.Missing()
		if step = min(step, digested, c.plan.Planned()); !ok || step <= c.plan.Acked() {
			return
		}
		c.done(step)
	}
}

// done lets go of the steps before one.
func (c *Core) done(step int64) {
	if c.plan == nil || step <= c.plan.Acked() || step > c.plan.Planned() {
		return
	}
	for k := c.plan.Acked(); k < step; k++ {
		delete(c.job.steps, k)
		delete(c.job.saved, k)
	}
	c.raise(onPlanned | onRoster)
	c.tell(plan.Acked{Step: step})
	c.trimLog()
}

// ackOf is how far a DP rank is, if that is known: its constructor tells the step
// at once, and every second which of its ranks that is due to by now.
func (c *Core) ackOf(dp uint32) (a Acked, known bool) {
	a, known = c.acks.of[dp]
	m := c.constructorOf(dp)
	if m == nil {
		return a, known
	}
	for _, b := range m.lag.Slowest {
		if b.Bucket == dp && b.Generation == c.job.generation && (!known || b.Step >= a.Step) {
			a, known = b, true
		}
	}
	return a, known
}

// slowest is the rank that holds the job back, and how far it is. Of those that are equally far it is one
// that does not wait itself. Where nothing is known of a bucket, that is what text says.
func (c *Core) slowest() (slow Acked, text string) {
	for d := range uint32(c.job.tree.Sizes().DP) {
		a, known := c.ackOf(d)
		if !known {
			return Acked{}, fmt.Sprintf("no rank of dp=%d has finished a step after %d", d, c.plan.Acked())
		}
		if d == 0 || a.Step < slow.Step || a.Step == slow.Step && slow.Waits && !a.Waits {
			slow = a
		}
	}
	switch {
	case c.allLeft():
		return Acked{}, fmt.Sprintf("all have ended, the first at step %d", slow.Step)
	case slow.Left: // nothing that it does takes long
		return Acked{}, fmt.Sprintf("%s has ended, at step %d: its client was closed, and the others wait for it", slow.Slowest, slow.Step)
	}
	return slow, fmt.Sprintf("%s is at step %d", slow.Slowest, slow.Step)
}

// allLeft says whether the clients of all ranks were closed.
func (c *Core) allLeft() bool {
	left := 0
	for _, m := range c.members.present() {
		if m.lag.Generation == c.job.generation {
			left += m.lag.Left
		}
	}
	return left == c.fetchers()
}

// absentees are the ranks that have not asked for a batch since the job was moved
// last, or since they joined again: no step is done without them.
type absentees struct {
	count, all int    // of the ranks that fetch
	ranks      []Rank // the first of them
}

// maxAbsent ranks are named.
const maxAbsent = 8

// NotAsked is in the text of a wait for ranks that did not come, before their names.
const NotAsked = "have not asked for a batch yet"

// String names them: "3 of 8 ranks have not asked for a batch yet: rank dp=0 ..., ...".
func (a absentees) String() string {
	var names []string
	for _, r := range a.ranks {
		names = append(names, r.String())
	}
	text := fmt.Sprintf("%d of %d ranks %s: %s", a.count, a.all, NotAsked, strings.Join(names, ", "))
	if more := a.count - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func compareRanks(x, y Rank) int {
	return cmp.Or(cmp.Compare(x.DP, y.DP), cmp.Compare(x.CP, y.CP), cmp.Compare(x.PP, y.PP), cmp.Compare(x.TP, y.TP))
}

// absent is what the constructors last said of it.
func (c *Core) absent() (a absentees) {
	a.all = c.fetchers()
	for _, m := range c.members.constructors {
		if m != nil && m.lag.Generation == c.job.generation {
			a.count += m.lag.Absent
			a.ranks = append(a.ranks, m.lag.AbsentRanks...)
		}
	}
	slices.SortFunc(a.ranks, compareRanks)
	a.ranks = a.ranks[:min(len(a.ranks), maxAbsent)]
	return a
}

// refused names a rank that constructors refuse, as the job was moved, and that is still there: no
// step is done without it.
func (c *Core) refused() string {
	for _, m := range c.members.constructors {
		if m != nil && m.lag.Generation == c.job.generation && m.lag.Refused != "" {
			return m.lag.Refused
		}
	}
	return ""
}

// absence is the time during which some ranks were there and others were not.
type absence struct {
	begun, noted bool
	since        Millis
}

// absentTime is how long ranks may take to come before the log names them: those that
// are started together join within seconds.
const absentTime Millis = 10_000

// lags takes what a constructor says of its ranks.
func (c *Core) lags(ev Lag) {
	if m := c.members.constructor(ev.Session); m != nil {
		m.lag = ev
		c.noteAbsent()
	}
}

// noteAbsent names the ranks that the others wait for, once.
func (c *Core) noteAbsent() {
	who, a := c.absent(), &c.absence
	switch {
	case who.count == 0 || !c.job.positioned:
		*a = absence{}
	case !a.begun:
		*a = absence{begun: true, since: c.now}
	case !a.noted && c.now-a.since >= absentTime:
		a.noted = true
		c.note(Warn, "the other ranks wait: "+who.String(), "seconds", int((c.now-a.since)/1000))
	}
}

// tick lets time pass.
func (c *Core) tick(now Millis) {
	c.now = max(c.now, now)
	c.raise(onTick)
	c.flushEntered()
	if c.absence.begun {
		c.noteAbsent()
	}
	c.standIn()
	c.judge()
	c.judgeTwins()
	c.replaceReported()
	c.seatSpares()
	c.goHome()
	c.lookHome()
	c.lookMisplaced()
	c.look()
	c.admitLate()
	c.indexLate()
}

// furthest is how many steps any rank can have: they were planned by this planner, wherever the job is now, or by
// those before it, for ranks that were taken along since.
func (c *Core) furthest() int64 {
	return max(c.plan.Planned(), c.log.steps(), c.job.reached, c.alongTo())
}
