package plan

import (
	"bytes"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
)

// without returns changes without the last one that is written like ch, and whether
// there was one.
func without(changes []Change, ch Change) ([]Change, bool) {
	for i, x := range slices.Backward(changes) {
		if bytes.Equal(x.Text, ch.Text) {
			return slices.Delete(slices.Clone(changes), i, i+1), true
		}
	}
	return changes, false
}

// CheckCancel says why a change cannot be taken back, nil if it can: it has to be
// pending, and those that are pending with it must be possible without it.
func (c *Core) CheckCancel(ch Change) error {
	at := c.window[c.state.Step] // with all changes that are not part of a step yet
	left, pending := without(at.Pending, ch)
	if !pending || c.Effective(ch.Step) > ch.Step {
		return fault.Userf("step %d is planned already, with the change: another one can be made for step %d or later", ch.Step, c.Effective(0))
	}
	s := at.Settings
	for _, x := range left {
		if err := c.check(x, s); err != nil {
			return fault.Userf("the change %q of step %d builds on it, so that it has to be cancelled first: without it, %w", x.Kind, x.Step, err)
		}
		s = c.cfg.with(s, x)
	}
	return nil
}

// cancel takes a pending change out of all positions.
func (c *Core) cancel(ch Change) {
	for k, s := range c.window {
		s.Pending, _ = without(s.Pending, ch)
		c.window[k] = s
	}
	c.state.Pending, _ = without(c.state.Pending, ch)
	if c.Effective(0) == c.state.Step { // else this step's data is being passed over, by other changes
		c.state, c.step = c.window[c.state.Step].Clone(), prelude{}
	}
	c.pending, c.prepared = nil, false
}
