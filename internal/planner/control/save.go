package control

import (
	"github.com/millrace-data/millrace/internal/fault"
)

// savedToken is a resume token that some ranks were given, and others will be.
type savedToken struct {
	token []byte
	left  int // ranks that did not ask yet
}

// reachTime is how long a service waits for the position of a rank that asks for a state.
// A rank has only ever done steps that were planned: a service that has not planned them
// was started again since, and comes to them when other ranks that know where they are
// have joined, or when the core has planned what follows. Both take less.
const reachTime Millis = 5000

// saving is a Save under way.
type saving struct {
	core    *Core
	step    int64
	reached bool // the step was planned, in a job that a rank has joined
}

// try answers with the token of a step, once it is planned and assembled.
func (s *saving) try(a *asked) (Reply, bool, error) {
	c := s.core
	if !s.reached {
		// Without a rank that joined, the one who asks may be who the job waits for.
		s.reached = c.plan != nil && c.job.positioned && s.step <= c.plan.Planned()
	}
	if !s.reached {
		c.wait(onMembers | onMove | onPlanned | onTick | onLog)
		if c.now-a.since < reachTime || c.comesAgain(s.step) {
			return nil, false, nil
		}
		planned := int64(0)
		if c.job.positioned && c.plan != nil {
			planned = c.plan.Planned()
		}
		return nil, false, fault.Userf("this service does not know the state of step %d: it was started again, or moved back, and has planned %d steps since; "+
			"nothing is wrong with the job: restart all ranks from the same checkpoint", s.step, planned)
	}
	if acked := c.plan.Acked(); s.step < acked {
		return nil, false, fault.Userf("the state of step %d is gone: all trainers said they were done with %d steps; ask before the next batch", s.step, acked)
	}
	state, planned := c.plan.State(s.step)
	digest, digested := c.plan.Digest(s.step)
	if !planned || !digested {
		c.wait(onPlanned | onDigest)
		return nil, false, nil
	}
	saved := c.job.saved[s.step]
	if saved == nil {
		saved = &savedToken{c.saveReply(state, digest).Token, c.fetchers()}
		c.job.saved[s.step] = saved
	}
	// Ranks that save one after the other are given the same token, even if a change for a
	// step to come is made between them; who saves again is given another one, with the change.
	if saved.left--; saved.left == 0 {
		delete(c.job.saved, s.step)
	}
	return SaveReply{saved.token, digest}, true, nil
}
