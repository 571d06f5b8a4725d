package control

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/planner/mesh"
)

// proceedChange makes a change, or takes it as far as it goes now.
func (c *Core) proceedChange(ch change.Change) (step int64, done bool, err error) {
	switch {
	case c.plan == nil:
		c.wait(onMembers)
		return 0, false, nil
	case !c.job.positioned:
		c.wait(onMove) // the first trainer says at which step the job goes on
		return 0, false, nil
	case ch.Cancel != nil:
		step, err = c.cancel(ch)
		return step, err == nil, err
	case ch.Add != nil:
		n := c.plan.Sources() - c.base()
		if c.joining(n, ch.Add.Source) {
			return 0, false, nil // another source is about to join
		}
		if ready, err := c.know(n, ch.Add.Source); !ready || err != nil {
			return 0, false, err
		}
	case ch.Ban != nil:
		if ready, err := c.find(&ch); !ready || err != nil {
			return 0, false, err
		}
	}
	step, err = c.change(ch)
	if n := c.plan.Sources() - c.base(); err != nil && ch.Add != nil && c.failed == nil && n >= c.sources.joined {
		c.forget(n)
	}
	return step, err == nil, err
}

// change makes a change: to the log first, then in force. Whoever asked for it hears of
// it when it is durable.
func (c *Core) change(ch change.Change) (int64, error) {
	ch.Step = max(c.plan.Effective(ch.Step), c.log.steps())
	if step, moved := c.meshJoined(); moved && ch.Topology != nil {
		ch.Step = max(ch.Step, step+1)
	}
	if c.job.ended >= 0 {
		return 0, fault.Userf("the data ends after step %d, and all steps are planned: there is none left to change", c.job.ended-1)
	}
	p, err := c.resolve(c.plan, ch)
	if err != nil {
		return 0, err
	}
	if err := cmp.Or(c.plan.CheckNamed(p), c.plan.Check(p)); err != nil {
		return 0, err
	}
	c.persist(AddChange{ch})
	c.enter(ch, p)
	c.tell(plan.Changed{Change: p})
	return p.Step, c.failed
}

// cancel takes a change back that is pending: in the log first, then in force.
func (c *Core) cancel(ch change.Change) (int64, error) {
	j, i := &c.journal, c.journal.find(*ch.Cancel)
	switch {
	case i < 0 && j.wasCancelled(*ch.Cancel):
		return 0, fault.Userf("the change %s was cancelled already", ch.Cancel)
	case i < 0:
		return 0, fault.Userf("there is no change %s to cancel; %s", ch.Cancel, c.cancellable())
	case c.job.ended >= 0:
		return 0, fault.Userf("the data ends after step %d, and all steps are planned: there is no change left to cancel", c.job.ended-1)
	}
	p := j.entries[i].plan
	if n := c.log.steps(); p.Step < n {
		return 0, fault.Userf("the log has step %d already, with the change: another one can be made for step %d or later", p.Step, n)
	}
	if step, moved := c.meshJoined(); moved && p.Kind == plan.Remesh && p.Step == step {
		return 0, fault.Userf("the job has moved to the topology %s, whose ranks join at step %d: another change of the topology can be made for step %d or later", c.job.tree.Canonical(), p.Step, p.Step+1)
	}
	if err := c.plan.CheckCancel(p); err != nil {
		return 0, err
	}
	c.persist(AddChange{ch})
	j.note(ch)
	c.note(Info, "change cancelled", "change", string(p.Text))
	j.entries = append(j.entries[:i:i], j.entries[i+1:]...)
	c.tell(plan.Cancelled{Change: p})
	return p.Step, c.failed
}

// meshJoined says whether the job has moved already to the mesh that a pending change makes at a step, which is not
// planned again yet. Of its ranks some have joined; with another mesh at that step the others would be refused.
func (c *Core) meshJoined() (step int64, moved bool) {
	state, ok := c.plan.State(c.plan.Planned())
	changes := func(p plan.Change) bool { return p.Kind == plan.Remesh && p.Step == state.Step }
	return state.Step, ok && c.job.positioned && slices.ContainsFunc(state.Pending, changes) && c.job.tree.Equal(c.plan.MeshAt(state))
}

// cancellable names the changes that are pending.
func (c *Core) cancellable() string {
	var pending []string
	if state, ok := c.plan.State(c.plan.Planned()); ok {
		for _, p := range state.Pending {
			pending = append(pending, string(p.Text))
		}
	}
	if len(pending) == 0 {
		return "none is pending"
	}
	return "pending are " + strings.Join(pending, ", ")
}

// resolve turns the names of a change, whose step is final, into numbers. core has
// all changes before it.
func (c *Core) resolve(core *plan.Core, ch change.Change) (p plan.Change, err error) {
	p = plan.Change{Step: ch.Step, Text: []byte(ch.String())}
	all := c.sourceNames()
	names := all[:min(core.SourcesAt(ch.Step), len(all))]
	if source := ch.Source(); source != "" {
		if p.Source, err = sourceAt(names, all[:min(core.Sources(), len(all))], source, ch.Step); err != nil {
			return p, err
		}
	}
	switch {
	case ch.Weights != nil:
		p.Kind = plan.SetShares
		if p.Weights, err = ch.WeightsOf(names); err != nil {
			return p, err
		}
		p.Shares = mix.FromWeights(p.Weights)
	case ch.Schedule:
		p.Kind = plan.UseSchedule
	case ch.Pause != "":
		p.Kind = plan.Pause
	case ch.Resume != "":
		p.Kind = plan.Unpause
	case ch.Drop != "":
		p.Kind = plan.Drop
	case ch.Add != nil:
		p.Kind = plan.AddSource
		p.Add, err = c.added(ch.Add.Source)
		p.Add.Share = uint64(ch.Add.Weight * (1 << mix.Bits))
	case ch.Topology != nil:
		p.Kind, p.Mesh, p.From = plan.Remesh, sizes(ch.Topology), ch.From != ""
	case ch.Skip > 0:
		p.Kind, p.Steps = plan.Skip, ch.Skip
	case ch.Ban != nil:
		p.Kind = plan.BanSample
		p.Ban = c.journal.banOf(p.Source, ch.Ban.File, ch.Ban.Row)
	default:
		p.Kind, p.Batch = plan.Resize, plan.Shape{SequenceLength: int32(min(ch.SequenceLength, math.MaxInt32)), Rows: ch.Sequences}
	}
	return p, err
}

// sourceAt is the number of a source among those of a step; all are those
// that there will be.
func sourceAt(names, all []string, source string, step int64) (int32, error) {
	i, err := change.Find(names, source)
	if err != nil {
		if _, later := change.Find(all, source); later == nil {
			err = fault.Userf("source %q joins after step %d", source, step)
		}
	}
	return int32(i), err
}

// reshaped refuses rows that constructors could not cut for a mesh: they would find
// out when the step is planned and logged.
func (c *Core) reshaped(length, rows int, tree *mesh.Tree) error {
	return c.cfg.Job.Reshape(length, rows, tree.Sizes().CP, tree.Sizes().TP)
}

// sizes are those of a topology, whose names were checked.
func sizes(topology map[string]int) (m mesh.Sizes) {
	axes := map[string]*int{"dp": &m.DP, "cp": &m.CP, "pp": &m.PP, "tp": &m.TP, "vpp": &m.VPP, "ep": &m.EP}
	for name, n := range topology {
		*axes[name] = n
	}
	return m
}
