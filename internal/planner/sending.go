package planner

import (
	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// What is sent comes first. While parts of a plan are on their way to constructors,
// orders to loaders wait: what they read is for later steps. And when all parts are
// gone, the core draws the next step ahead of its time.

// sendPart sends a constructor its part of a plan.
func (p *Planner) sendPart(c *constructorSession, part *pb.ConstructorOrder) {
	c.unsent++
	c.out.Put(part)
}

// partSent notes that a part of a plan is gone.
func (p *Planner) partSent(c *constructorSession) {
	c.unsent--
	p.orderLater()
}

// sending says whether parts of plans are still to be sent.
func (p *Planner) sending() bool {
	for _, c := range p.constructors {
		if c != nil && c.unsent > 0 {
			return true
		}
	}
	return false
}

// order tells loaders what to read and what to let go of, now or when all parts are
// sent.
func (p *Planner) order(effects []plan.Effect) {
	p.later = append(p.later, effects...)
	p.orderLater()
}

// orderLater tells loaders what waits, if nothing is being sent.
func (p *Planner) orderLater() {
	if len(p.later) == 0 || p.sending() {
		return
	}
	var released []plan.Release
	for _, e := range p.later {
		switch e := e.(type) {
		case plan.Want:
			p.want(wantKey{e.Source, e.Seq})
		case plan.Release:
			released = append(released, e)
		}
	}
	p.later = p.later[:0]
	if len(released) > 0 {
		p.release(released)
	}
}

// drawAhead has the core prepare the next step.
func (p *Planner) drawAhead() {
	if p.core != nil && p.failed == nil && !p.sending() {
		p.act(p.core.Prepare())
	}
}
