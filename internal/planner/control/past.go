package control

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// A checkpoint may be known by its step alone: its resume token comes out of the log then, if
// the job is past it. Nothing moves by that, and no rank is waited for.

// past is a Past under way.
type past struct {
	core *Core
	step int64
	asks bool // the log is read
}

// try answers with the token of a step that the job holds.
func (p *past) try(a *asked) (Reply, bool, error) {
	c := p.core
	if c.plan == nil {
		c.wait(onMembers)
		return nil, false, nil
	}
	if a.read != nil {
		return p.fromLog(a.read)
	}
	if p.asks {
		return nil, false, nil
	}
	if c.job.positioned {
		state, planned := c.plan.State(p.step)
		if digest, digested := c.plan.Digest(p.step); planned && digested {
			return c.saveReply(state, digest), true, nil
		}
	}
	last := c.lastHeld()
	if !c.log.begun {
		first := c.plan.Acked()
		if !c.job.positioned {
			last = first - 1
		}
		return nil, false, p.notHeld(first, last, false)
	}
	p.asks = true
	c.emit(ReadLog{At: min(p.step, last), Asked: a.id})
	return nil, false, nil
}

// lastHeld is the last position that the job may hold.
func (c *Core) lastHeld() (last int64) {
	if !c.job.positioned {
		return c.log.next
	}
	last, _ = c.plan.Missing()
	return last
}

// fromLog answers with the position that the log leads to.
func (p *past) fromLog(read *LogRead) (Reply, bool, error) {
	c, first, last := p.core, read.First, read.At
	if first > 0 { // the chain value there may have been cut off with the step before
		first++
	}
	if c.job.positioned {
		last = c.lastHeld()
		first = min(first, last)
	}
	if p.step < read.First || read.Err == nil && read.At != p.step {
		return nil, false, p.notHeld(first, last, read.Left)
	}
	state, digest, ready, err := c.positionRead(read)
	switch {
	case err != nil && read.Err == nil && p.step == read.First && p.step < first:
		return nil, false, p.notHeld(first, last, read.Left)
	case err != nil:
		return nil, false, fault.As(fault.ClassOf(err), fmt.Errorf("reading step %d of the log: %w", p.step, err))
	case !ready:
		return nil, false, nil // a source is to be indexed
	}
	return c.saveReply(state, digest), true, nil
}

// pastRead gives a question what it wants of the log, unless it was withdrawn.
func (c *Core) pastRead(ev LogRead) {
	for _, a := range c.asks.waiting {
		if a.id == ev.Asked {
			a.read, a.heard = &ev, true
			c.raise(onHeard)
		}
	}
}

func (c *Core) saveReply(state plan.State, digest [32]byte) SaveReply {
	return SaveReply{token.Encode(c.id, c.plan.MeshAt(state), state, digest), digest}
}

// notHeld says which steps there are instead; left says that a branch has the step that the job left.
func (p *past) notHeld(first, last int64, left bool) error {
	why, valid := "its log begins with a later step", fmt.Sprintf("a step from %d to %d", first, last)
	switch logged := p.core.log.begun; {
	case last < first && !logged:
		return fault.Userf("the job does not hold step %d, nor any other: no rank has joined yet, and it has no log of an earlier life; resume from a token", p.step)
	case last < first:
		valid = "a later step"
	case p.step > last:
		why = "it is not planned and assembled yet, or of a branch that the job left when it moved back"
	case !logged:
		why = "all ranks are done with it, and the service keeps no log"
	case p.step < p.core.log.trimmed:
		why = "its log was cut there (--log-retain)"
	case left:
		why = "it is of a branch that the job left when it moved, and which does not lead to where the job is"
	}
	return fault.Userf("the job does not hold step %d: %s; valid is %s, or a resume token", p.step, why, valid)
}
