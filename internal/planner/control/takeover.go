package control

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// A planner that starts with the log of an earlier life goes on with the generation that the
// log has, whoever is left of those that were there. Two facts say from which position. No step
// is planned that is further than Ahead from what all ranks are done with, so that all of them
// stand at most Ahead steps before the last plan that anyone has. And nothing counts as done
// before its digest does (advance), so that the log knows the chain value there. How far plans
// went, constructors say that kept some, or the first rank that joins again and says where it
// stands; the end of the log is a guess, since in one of a version without branches a job that moved
// back planned steps again that the log had. What was planned is planned again, compared with the log, and sent to those only who
// do not have it.

// takeover is where a planner stands that goes on.
type takeover struct {
	begun   bool                // the log has a generation that goes on
	from    int64               // where it began
	known   int64               // that many steps were planned at least, as somebody said; -1: nobody did yet
	state   plan.State          // the first step's, with the changes of the log
	reading bool                // the log is being read
	read    *LogRead            // what was read, until it is used
	late    []ConstructorJoined // constructors that hold nothing, and wait for those that do
	since   Millis              // when the first member came
	counts  bool                // since is known
	settled bool                // nobody is waited for any more
}

// epochBits leaves a planner 2^32 joins: those of its successor have greater numbers.
const epochBits = 32

// holdTime is how long constructors of an earlier life, and the last of the loaders, may take to
// come back to a planner that goes on. A role tries again within a second.
const holdTime Millis = 1500

// goOn finds out whether a log has a generation that goes on.
func (c *Core) goOn(ev LogOpened) {
	c.job.history = slices.Clone(ev.Generations)
	if len(c.job.history) == 0 {
		return
	}
	last := c.job.history[len(c.job.history)-1]
	if c.job.generation = last.Number; last.Step >= ev.Next {
		c.job.generation++ // nobody was given a step of it
		return
	}
	c.take.begun, c.take.from = true, last.Step
	c.roster.goOn = true
}

// goal is the position to go on from: all ranks have reached it.
func (c *Core) goal() int64 {
	planned, ahead := c.log.next, c.cfg.Plan.Ahead
	if c.take.known >= 0 {
		planned = min(planned, c.take.known)
	}
	goal := max(planned-ahead, c.take.from)
	if c.take.from < c.log.trimmed { // all ranks are done with that step, and the chain value before it is gone
		goal = max(goal, c.log.trimmed+1)
	}
	if least, all := c.leastHeld(); all {
		goal = max(goal, least)
	}
	return goal
}

// comesAgain says whether a step is one that the log of an earlier life has, so that it is
// planned again, as soon as what it is planned from was read again.
func (c *Core) comesAgain(step int64) bool {
	if !c.log.opened {
		return c.cfg.Resumes
	}
	return c.take.begun && c.take.from <= step && step <= c.log.next
}

// leastHeld is the lowest acknowledgement of what constructors hold, if that is of all
// buckets.
func (c *Core) leastHeld() (least int64, all bool) {
	buckets := map[uint32]bool{}
	for _, m := range c.members.present() {
		if c.goesOn(m) {
			for _, a := range m.held.Acked {
				if least = min(least, a.Step); len(buckets) == 0 {
					least = a.Step
				}
				buckets[a.Bucket] = true
			}
		}
	}
	return least, len(buckets) == c.job.tree.Sizes().DP
}

// readLog has the log read that leads to the goal.
func (c *Core) readLog() {
	if !c.take.reading {
		c.take.reading = true
		for _, m := range c.members.present() {
			c.hearHeld(m)
		}
		c.emit(ReadLog{At: c.goal()})
	}
}

func (c *Core) logRead(ev LogRead) {
	if ev.Asked != 0 {
		c.pastRead(ev)
		return
	}
	c.take.reading = false
	if c.job.positioned && c.plan != nil { // a rank said otherwise meanwhile
		for _, m := range c.members.present() {
			if m.held != nil {
				c.welcome(m)
			}
		}
		return
	}
	c.take.read = &ev
	c.arrive()
}

// arrive goes on from the position that was read, once all sources of it are indexed.
func (c *Core) arrive() {
	read := c.take.read
	if read.Err == nil && read.At > c.goal() {
		c.take.read = nil
		c.readLog()
		return
	}
	state, digest, ready, err := c.positionRead(read)
	if !ready && err == nil {
		return
	}
	c.take.read = nil
	switch {
	case err != nil && fault.ClassOf(err) == fault.User:
		c.fail(err)
	case err != nil && c.plan == nil:
		c.note(Warn, "the log does not lead to where the job was: ranks say it by their tokens", "err", err)
		c.take.begun, c.roster.goOn = false, false
		c.job.generation++
		c.startFirst()
	case err != nil:
		c.fail(err)
	default:
		c.plant(state, digest, read.Known)
	}
}

// positionRead is the position that the log leads to.
func (c *Core) positionRead(read *LogRead) (state plan.State, digest [32]byte, ready bool, err error) {
	if read.Err != nil {
		return state, digest, false, read.Err
	}
	at, err := token.Decode(c.id, read.Frame)
	if err != nil {
		return state, digest, false, err
	}
	if ready, err = c.knowAll(at); !ready || err != nil {
		return state, digest, false, err
	}
	if state, err = c.whole(at); err != nil {
		return state, digest, false, err
	}
	cfg, step := c.planConfig(), read.FrameStep
	state, err = token.Replay(&cfg, state, read.Parted, func(each func(int64, []byte) error) error {
		for _, record := range read.Records {
			if err := each(step, record); err != nil {
				return err
			}
			step++
		}
		return nil
	})
	switch digest = read.Digest; {
	case err != nil:
		return state, digest, false, err
	case read.Digested:
	case read.At == 0:
		digest = c.root()
	case read.At == read.FrameStep && at.Digest != [32]byte{}:
		digest = at.Digest
	default:
		return state, digest, false, fmt.Errorf("the log has the records before step %d, and no digest", read.At)
	}
	return state, digest, true, nil
}

// plant has the core of steps go on from a position of this generation, which somebody said,
// or which is a guess.
func (c *Core) plant(state plan.State, digest [32]byte, known [][32]byte) {
	j := &c.job
	if c.plan == nil {
		c.plan = c.scratch()
	}
	before := j.tree
	j.tree = c.plan.MeshAt(plan.State{Settings: state.Settings})
	if state.Step == c.take.from {
		j.tree = c.plan.MeshAt(state)
	}
	j.positioned = c.take.known >= 0
	until := c.log.next
	if j.positioned {
		until = min(until, c.take.known+c.cfg.Plan.Ahead)
	}
	c.clearSteps()
	c.note(Info, "the job goes on", "generation", j.generation, "from", state.Step, "logged", c.log.next, "digests", len(known))
	for _, m := range c.members.present() {
		m.has = math.MaxInt64 // until it hears where the job goes on
	}
	c.placementChanged()
	if c.tell(plan.Rewind{State: state, Digest: digest, Known: known, Until: until}); c.failed != nil {
		return // those who are there hear it, and nothing else
	}
	for _, m := range c.members.present() {
		if !before.Equal(j.tree) || !slices.Equal(m.buckets, c.bucketsOf(m)) {
			c.brief(m)
		}
		c.welcome(m)
	}
	c.raise(onMembers | onMove | onRoster | onPlanned)
	c.readersChanged()
}

// clearSteps forgets what was planned.
func (c *Core) clearSteps() {
	clear(c.job.steps)
	clear(c.job.saved)
	clear(c.members.wanted)
	c.job.remesh, c.job.ended, c.job.endReason = nil, -1, ""
	c.members.floors.forget()
	c.emit(Recall{})
	c.reports.upTo, c.reports.from = 0, nil
	c.sources.rewind()
}

// located takes how many steps of this generation were planned at least, and says whether the
// job stands where all can go on from.
func (c *Core) located(planned int64) bool {
	if c.job.positioned || !c.take.begun {
		return c.job.positioned
	}
	c.take.known = max(c.take.known, planned)
	switch {
	case c.plan == nil || c.take.reading:
		return false
	case c.plan.Acked() > c.goal():
		c.readLog()
		return false
	}
	return c.settle() == nil
}

// goesOn says whether a constructor holds what this generation goes on with.
func (c *Core) goesOn(m *constructor) bool {
	h := m.held
	if h == nil || len(m.buckets) == 0 || !bytes.Equal(h.Identity, c.id.Identity[:]) || h.Generation != c.job.generation || c.ofAnotherLife(m) {
		return false
	}
	for _, bucket := range m.buckets {
		if !slices.ContainsFunc(h.Acked, func(a Acked) bool { return a.Bucket == bucket }) {
			return false
		}
	}
	switch {
	case c.job.positioned && c.plan != nil:
		return h.Next >= c.plan.Acked()
	default:
		return c.take.begun && h.Next <= c.log.next && h.Next >= c.take.from
	}
}

// ofAnotherLife says whether the generation that a constructor holds is not this planner's, though the
// number is: without a log, planners number them each for themselves. Who came into it here said so.
func (c *Core) ofAnotherLife(m *constructor) bool {
	return !c.take.begun && m.instance != 0 && c.members.came[m.instance] != m.held.Generation+1
}

// hearHeld hears of what a constructor holds before the core of steps is there.
func (c *Core) hearHeld(m *constructor) {
	if c.goesOn(m) {
		c.located(m.held.Next)
	}
}

// welcome tells a constructor where the job goes on: one that holds steps of this generation
// keeps them.
func (c *Core) welcome(m *constructor) {
	h := m.held
	if !c.goesOn(m) {
		if m.has = 0; h != nil && h.Generation >= c.job.generation && !c.job.positioned && !c.take.begun {
			c.riseAbove()
			return
		}
		m.held = nil
		c.raise(onMembers)
		c.enterAlong(h)
		c.resend(m)
		return
	}
	if !c.located(h.Next) {
		m.has = h.Next // nothing is sent to it before
		return
	}
	// A constructor that began again beyond a step, while its digest was known, has no rows of it, and the log may have
	// lost the digest with this machine: the plans of such steps are sent, too. Who has them passes them over.
	digested, _ := c.plan.Missing()
	from := min(digested, h.Next)
	m.held, m.has, m.generation = nil, from, h.Generation
	c.raise(onMembers)
	c.enterHeld(m, h)
	c.send(Entered{m.session, c.roster.joins})
	c.send(Restart{To: m.session, Generation: c.job.generation, NextStep: from, Moved: c.job.moved, Continues: true})
	c.sendSteps(m, from)
}

// riseAbove takes a generation above all that constructors hold: what they have is of another
// log, or of none.
func (c *Core) riseAbove() {
	for _, m := range c.members.present() {
		if m.held != nil {
			c.job.generation = max(c.job.generation, m.held.Generation+1)
			c.roster.joins = max(c.roster.joins, m.held.Entered)
		}
	}
	if c.job.generation > 0 {
		for _, m := range c.members.present() {
			m.held = nil
			c.raise(onMembers)
			c.resend(m)
		}
	}
}

// enterHeld takes what a constructor knows of its ranks.
func (c *Core) enterHeld(m *constructor, h *Held) {
	c.roster.joins = max(c.roster.joins, h.Entered)
	for _, a := range h.Acked {
		if before, known := c.acks.of[a.Bucket]; !known || before.Step < a.Step {
			c.acks.put(a, c.roster.joins)
		}
	}
	for _, r := range h.Ranks {
		if c.roster.last[r.Rank].join < r.Join {
			c.roster.last[r.Rank] = arrival{rank: r.Rank, join: r.Join, generation: r.Generation, step: r.Step}
		}
	}
	c.enterAlong(h)
	c.raise(onRoster | onRestarted)
}

// enterAlong takes what a constructor of an earlier life knows of its ranks that entered where the generation
// that goes on began, and go on in it ([Core.beganWith]) once they join again. The constructor may not have heard
// of that generation.
func (c *Core) enterAlong(h *Held) {
	if h == nil || !c.take.begun || !bytes.Equal(h.Identity, c.id.Identity[:]) {
		return
	}
	for _, r := range h.Ranks {
		e := r.Entered
		if e.Join == 0 && r.Asked {
			e = RankEntry{r.Join, r.Generation, r.Step}
		}
		if e.Join > c.roster.entered[r.Rank].join {
			c.roster.entered[r.Rank] = arrival{rank: r.Rank, join: e.Join, generation: e.Generation, step: e.Step}
		}
	}
}

// lacking are the constructors that are to get a step.
func (m *members) lacking(step int64) []*constructor {
	return slices.DeleteFunc(m.present(), func(x *constructor) bool { return step < x.has || x.held != nil })
}
