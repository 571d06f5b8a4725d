package control

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/planner/plan"
)

// Cause says what kind of part holds the next step up.
type Cause string

// What holds a step up. With CauseTrainers the service has done all that it may.
const (
	CauseNothing     Cause = ""            // the job has failed
	CauseMember      Cause = "member"      // a loader or constructor that is to come, or the log
	CauseSource      Cause = "source"      // its blocks are being read
	CauseConstructor Cause = "constructor" // rows are being put together
	CauseLog         Cause = "log"         // what is planned is being written, and nobody has it before
	CausePlanner     Cause = "planner"     // a step may be planned, and all is there
	CauseTrainers    Cause = "trainers"    // as many steps are planned as may be
)

// Holdup is what holds the job up right now.
type Holdup struct {
	Cause   Cause
	Name    string // which one, where there are several
	Text    string // in words
	Log     Millis // with CauseLog: for how long it has been written to
	Ranks   bool   // ranks are waited for: the service has done all that it may
	Loaders bool   // with CauseMember: a loader is waited for, as none is connected or none says anything
	Slow    Acked  // the rank that is waited for, where that is one
	Quiet   string // a constructor that serves ranks and has missed a few beats; "" if none has
}

// Holdup says what holds the job up right now.
func (c *Core) Holdup() Holdup {
	h := c.holdup()
	for _, m := range c.members.present() {
		if m.quiet && h.Quiet == "" {
			h.Quiet = m.name
		}
	}
	return h
}

func (c *Core) holdup() Holdup {
	if c.failed != nil { // there may be no plan to ask
		return Holdup{Text: "nothing: the job has failed"}
	}
	if text := c.missingMember(); text != "" {
		return Holdup{Cause: CauseMember, Text: text}
	}
	step, rows := c.plan.Missing()
	next := c.nextMesh(step)
	if next == nil && c.starved() {
		if text := c.missingLoader(); text != "" {
			return Holdup{Cause: CauseMember, Text: text, Loaders: true}
		}
		return Holdup{Cause: CauseSource, Name: c.sources.specs[c.firstWanted().source].Name, Text: c.unread()}
	}
	if who := c.refused(); who != "" {
		return Holdup{Cause: CauseTrainers, Text: who}
	}
	all := step >= c.plan.Planned() // that was planned is assembled
	if (all || next != nil) && len(c.out.held) > 0 || !all && c.out.unlogged(step) {
		d, _ := c.Unwritten()
		return Holdup{Cause: CauseLog, Text: "the log in " + c.log.dir, Log: d}
	}
	if next != nil {
		return c.leaving(next)
	}
	full := c.crowded(step)
	if !all && full == "" {
		if text := c.missingLoader(); text != "" {
			return Holdup{Cause: CauseMember, Text: text, Loaders: true}
		}
		return Holdup{Cause: CauseConstructor, Text: fmt.Sprintf("%d rows of step %d to be assembled", rows, step)}
	}
	slow, text := c.trainers()
	if !all {
		return Holdup{Cause: CauseTrainers, Text: text + full, Ranks: true, Slow: slow}
	}
	return Holdup{Cause: c.idleCause(), Text: text, Ranks: true, Slow: slow}
}

// nextMesh is the first step for another mesh, if all before the given one is assembled, and that is all that the ranks of
// this mesh get; else nil. No step is put together for those of the next mesh before one of them has joined.
func (c *Core) nextMesh(step int64) *plan.Step {
	if s := c.job.remesh; s != nil && step >= s.Step {
		return s
	}
	return nil
}

// leaving is the holdup from then on.
func (c *Core) leaving(next *plan.Step) Holdup {
	if c.plan.Acked() < next.Step {
		slow, text := c.trainers()
		return Holdup{Cause: CauseTrainers, Text: text, Ranks: true, Slow: slow}
	}
	return Holdup{Cause: CauseTrainers, Text: fmt.Sprintf("ranks of %s to join, from the state of step %d", next.Mesh.Canonical(), next.Step), Ranks: true}
}

// crowded says which constructor has no room for a step until ranks have finished others, as the end of a sentence; "" if
// all have, as far as is known: they tell it each second.
func (c *Core) crowded(step int64) string {
	for _, m := range c.members.present() {
		if l := m.lag; l.Generation == c.job.generation && l.Crowded == step+1 {
			return fmt.Sprintf("; %s has no room for step %d: steps that ranks have not finished hold %d of %d bytes of its buffer", m.name, step, l.Held, l.Most)
		}
	}
	return ""
}

// idleCause is the cause where no member is waited for: the planner itself, if it may plan.
func (c *Core) idleCause() Cause {
	if c.job.positioned && c.job.ended < 0 && c.plan.Planned()-c.plan.Acked() < c.cfg.Plan.Ahead {
		return CausePlanner
	}
	return CauseTrainers
}

// trainers names the ranks that are waited for; slow is the zero value unless it is one that is behind.
func (c *Core) trainers() (slow Acked, text string) {
	if who := c.awaited(); who != "" {
		return slow, who
	}
	if !c.job.positioned {
		return slow, "the first trainer to join, which says at which step the job goes on"
	}
	if who := c.absent(); len(who.ranks) > 0 {
		return slow, "trainers: " + who.String()
	}
	slow, text = c.slowest()
	return slow, "trainers: " + text
}

// Generation is that of the job: it rises when the job moves to another step.
func (c *Core) Generation() uint64 { return c.job.generation }
