package control

import "github.com/millrace-data/millrace/internal/fault"

// A log that need not keep all lets go of old steps. What a planner that takes over goes on
// from is at most Ahead steps before what all ranks are done with; Config.Retain steps below
// that are kept for those who go back to a resume token. The log begins with a key frame, so
// that up to as many more stay as there are from one to the next.

// trimLog lets go of the steps of the log that nobody is to go back to any more, up to a key
// frame that has long been durable. It is written with the steps that come next.
func (c *Core) trimLog() {
	if c.cfg.Retain == 0 || !c.log.kept || c.plan == nil {
		return
	}
	before := c.plan.Acked() - c.cfg.Plan.Ahead - c.cfg.Retain
	before -= before % c.cfg.TrimEvery
	if before > c.log.trimmed && c.job.positioned {
		c.note(Info, "the log lets go of steps", "before", before)
		c.persist(Trim{before})
	}
}

// retained refuses a position of which the log has let go.
func (c *Core) retained(step int64) error {
	if step >= c.log.trimmed {
		return nil
	}
	return fault.Userf("step %d is not in the log in %s any more: its first step is %d, and those before were let go of (--log-retain): "+
		"resume all ranks from a checkpoint of step %d or later, or start the service with another, empty --log-dir, and --log-mirror if there is one, to go on from an earlier one",
		step, c.log.dir, c.log.trimmed, c.log.trimmed)
}
