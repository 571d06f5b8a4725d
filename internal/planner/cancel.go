package planner

import (
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/planner/mesh"
)

// cancel takes a change back that is pending: durable first, then in force.
func (p *Planner) cancel(c change.Change) (uint64, error) {
	text := c.Cancel.String()
	i := len(p.journal) - 1
	for i >= 0 && string(p.journal[i].Text) != text {
		i--
	}
	switch {
	case i < 0 && p.cancelled[text]:
		return 0, fault.Userf("the change %s was cancelled already", text)
	case i < 0:
		return 0, fault.Userf("there is no change %s to cancel; %s", text, p.cancellable())
	case p.ended >= 0:
		return 0, fault.Userf("the data ends after step %d, and all steps are planned: there is no change left to cancel", p.ended-1)
	}
	ch := p.journal[i]
	if n := p.loggedSteps(); ch.Step < n {
		return 0, fault.Userf("the log has step %d already, with the change: another one can be made for step %d or later", ch.Step, n)
	}
	fits := func(length int32, mesh *mesh.Tree) error { return p.reshaped(int(length), mesh) }
	if err := p.core.CheckCancel(ch, fits); err != nil {
		return 0, err
	}
	if err := p.write(c); err != nil {
		p.fail(err)
		return 0, err
	}
	p.opts.Log.Info("change cancelled", "job", p.id.name, "change", text)
	p.journal = slices.Delete(p.journal, i, i+1)
	p.apply(plan.Cancelled{Change: ch})
	return uint64(ch.Step), p.failed
}

// cancellable names the changes that are pending.
func (p *Planner) cancellable() string {
	var pending []string
	if state, ok := p.core.State(p.core.Planned()); ok {
		for _, ch := range state.Pending {
			pending = append(pending, string(ch.Text))
		}
	}
	if len(pending) == 0 {
		return "none is pending"
	}
	return "pending are " + strings.Join(pending, ", ")
}

// write makes a change durable that the core never hears of.
func (p *Planner) write(c change.Change) error {
	if p.log != nil {
		if err := p.log.AddChange([]byte(c.String())); err != nil {
			return err
		}
	}
	p.noteCancel(c)
	return nil
}

// noteCancel enters a change in the list of those that were made, and the one that it cancels
// among those that no token brings back.
func (p *Planner) noteCancel(c change.Change) {
	p.made = append(p.made, c.String())
	if c.Cancel != nil {
		p.cancelled[c.Cancel.String()] = true
	}
}

// sift takes those out of the changes before the start that were cancelled. The first
// n are the log's.
func (p *Planner) sift(changes []change.Change, n int) error {
	gone, err := change.Cancelled(changes)
	if err != nil {
		return err
	}
	p.restored, p.logged = nil, 0
	logged := p.loggedSteps()
	for i, c := range changes {
		switch {
		case !gone[i] && i < n:
			p.logged++
			fallthrough
		case !gone[i]:
			p.restored = append(p.restored, c)
		case i < n:
			p.noteCancel(c)
		case c.Cancel != nil && c.Step < logged && indexOf(changes[:n], *c.Cancel) >= 0:
			return fault.Userf("%sthe change %s comes too late: the log in %s has the steps before %d already", c.Origin, c, p.opts.LogDir, logged)
		default:
			p.fresh = append(p.fresh, c)
		}
	}
	return nil
}

// bury makes those durable that were made before the start and cancelled there.
func (p *Planner) bury() error {
	for _, c := range p.fresh {
		if err := p.write(c); err != nil {
			return err
		}
	}
	p.fresh = nil
	return nil
}
