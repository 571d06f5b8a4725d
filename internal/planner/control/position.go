package control

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// positionOf reads a resume token; none is the first step.
func (c *Core) positionOf(data []byte) (*token.Position, error) {
	if len(data) == 0 {
		return &token.Position{State: plan.Start(c.base()), Digest: c.root()}, nil
	}
	return token.Decode(c.id, data)
}

// knowAll has the sources indexed that joined the job that a position is of.
func (c *Core) knowAll(at *token.Position) (ready bool, err error) {
	for n, entry := range at.Entries() {
		if ready, err := c.know(n, entry); !ready || err != nil {
			return false, err
		}
	}
	return true, nil
}

// whole is the position of a token with the changes up to it and after it, those that the journal knows among
// them: of a step in the order of the token ([change.Merge]), which the journal has from here on. The sources that
// joined are indexed. A token that is refused leaves no change.
func (c *Core) whole(at *token.Position) (plan.State, error) {
	state, err := at.Resolve(c.numberBan, c.joinedSource)
	if err != nil {
		return state, err
	}
	if err := cmp.Or(c.checkSettings(state), c.agree(state)); err != nil {
		return state, err
	}
	have, back, fresh := c.journal.merge(at.Pending, state.Step)
	for _, e := range have {
		state.Await(e.plan)
	}
	if err := c.again(state, back, fresh); err != nil {
		return state, err
	}
	if err := c.resume(&state, fresh, byToken); err != nil {
		return state, err
	}
	c.joinedUpTo(len(state.Settings.Added))
	return state, nil
}

// again takes changes of the journal back that are among fresh ones, unless those cannot be made.
func (c *Core) again(state plan.State, back []entry, fresh []change.Change) error {
	if len(back) == 0 {
		return nil
	}
	if i := slices.IndexFunc(back, func(e entry) bool { return e.Add != nil }); i >= 0 {
		return fault.Userf("%sthe change %s is for step %d, where the resume token of step %d has others before it that are not there, and a source cannot join again: "+
			"start the service without it, the token has it; with another log folder, if the log has it", back[i].Origin, back[i], back[i].Step, state.Step)
	}
	if err := c.checkAll(state.Clone(), fresh, byToken); err != nil {
		return err
	}
	var ops []Op
	for _, e := range back {
		cancel := change.Change{Step: e.Step, Cancel: &e.Change, Reason: fmt.Sprintf("it is made again, in the order of the resume token of step %d", state.Step)}
		c.journal.takeBack(cancel)
		ops = append(ops, AddChange{cancel})
	}
	c.persist(ops...)
	return nil
}

// checkSettings refuses a mesh and rows of a token that do not go together, or with the job: a token is a file that
// others write.
func (c *Core) checkSettings(state plan.State) error {
	s := state.Settings
	if s.Mesh == nil && s.Batch == (plan.Shape{}) {
		return nil
	}
	state.Pending = nil
	at := c.scratch()
	at.Apply(plan.Rewind{State: state})
	err := c.reshaped(int(at.SequenceLength()), s.Batch.Rows, at.Mesh())
	if err == nil {
		err = at.CheckSettings()
	}
	if err != nil {
		return fault.As(fault.User, fmt.Errorf("the resume token of step %d says what cannot be: %w", state.Step, err))
	}
	return nil
}

// numberBan gives a ban of a token its number, and tells the loaders of it.
func (c *Core) numberBan(b plan.Ban) plan.Ban {
	b = c.journal.banOf(b.Source, b.File, b.Row)
	c.ban(b)
	return b
}

// joinedSource is what the n-th source that joined is, if it is what a token says.
func (c *Core) joinedSource(n int, a plan.Added) (plan.Source, error) {
	i := c.base() + n
	if [32]byte(c.sources.indexed[i].Manifest) != a.Manifest {
		return plan.Source{}, fault.Userf("the data of source %q changed since it joined the job: put its files back as they were", c.sources.specs[i].Name)
	}
	return c.planSource(i), nil
}

// agree refuses a position if changes of a file, for steps before it, are no part
// of it: they would be passed over without a word.
func (c *Core) agree(state plan.State) error {
	var past []entry
	for _, e := range c.journal.entries {
		if e.plan.Step < state.Step {
			past = append(past, e)
		}
	}
	slices.SortStableFunc(past, func(a, b entry) int { return cmp.Compare(a.plan.Step, b.plan.Step) })
	changes := make([]plan.Change, len(past))
	for i, e := range past {
		changes[i] = e.plan
	}
	var filed []plan.Change // those of the past that stand in a file, from ch on
	for i, e := range slices.Backward(past) {
		ch, origin := e.plan, e.Origin
		if origin == "" && !ch.From {
			continue
		}
		filed = slices.Insert(filed, 0, ch)
		have := state.Settings.Have(changes[i:]) || state.Settings.Have(filed)
		if !have && ch.From {
			return fault.Userf("%sthe job went on from step %d with other ranks (%s), and the resume token of step %d was saved by those before: "+
				"what they were given from step %d on is void; resume from the token of that step, or from one that was saved since, "+
				"or start the service with another, empty log: it takes this token", origin, ch.Step, ch.Text, state.Step, ch.Step)
		}
		if !have { // what was made live may be of another branch
			return fault.Userf("%sthe change %s is for step %d, and the job of the resume token of step %d did not have it there, or has another one since: "+
				"leave it out, give it step %d or a later one, or resume from a token of step %d or before", origin, ch.Text, ch.Step, state.Step, state.Step, ch.Step)
		}
	}
	return nil
}

// begin starts the job where a shell without trainers has it begin. Its changes are trusted as those of the options are.
func (c *Core) begin(ev Begin) {
	c.log.begin = &ev
	for _, ch := range ev.Changes {
		c.trustEntry(ch)
	}
	c.start()
}

// startAt plans from the position of Begin, once the sources that joined before it, or
// will, are indexed. Changes that the token does not know are made on top, at their
// steps; those of steps before it belong to its past, and are refused if they stand in a
// file and it does not have them.
func (c *Core) startAt() {
	state, ready, err := c.positionAt(*c.log.begin)
	if err != nil {
		c.fail(err)
		return
	}
	if ready {
		c.plan = c.scratch()
		c.job.tree, c.job.positioned = c.plan.MeshAt(state), true
		c.run(state, c.root())
	}
}

func (c *Core) positionAt(ev Begin) (state plan.State, ready bool, err error) {
	start := plan.Start(c.base())
	for _, ch := range ev.Changes {
		if ch.Cancel != nil && !c.journal.wasCancelled(*ch.Cancel) {
			c.journal.cancelled = append(c.journal.cancelled, *ch.Cancel)
		}
	}
	changes, err := change.InForce(ev.Changes)
	if err != nil {
		return start, false, err
	}
	at, err := c.positionOf(ev.Token)
	if err != nil {
		return start, false, err
	}
	changes = change.Merge(at.Pending, changes, c.journal.wasCancelled)
	changes = slices.DeleteFunc(changes, func(ch change.Change) bool { return ch.Step < at.State.Step && ch.Origin == "" })
	at.Pending = changes // for the sources that they add
	if ready, err := c.knowOnce(at.Entries(), changes); !ready || err != nil {
		return start, false, err
	}
	at.Pending = nil
	if state, err = c.whole(at); err != nil {
		return state, false, err
	}
	for past := false; len(changes) > 0; past = !past {
		n := slices.IndexFunc(changes, func(ch change.Change) bool { return ch.Step < state.Step != past })
		if n < 0 {
			n = len(changes)
		}
		from := &state
		if past {
			from = &start
		}
		if err := c.resume(from, changes[:n], byUser); err != nil {
			return state, false, err
		}
		changes = changes[n:]
	}
	return state, true, c.agree(state)
}

// knowOnce has sources indexed, each once. An error names the change that adds the source, if it is one of changes.
func (c *Core) knowOnce(entries [][]byte, changes []change.Change) (ready bool, err error) {
	for _, entry := range entries {
		n := c.sources.entry(entry)
		if n < 0 {
			n = len(c.sources.entries)
		}
		ready, err := c.know(n, entry)
		if err != nil {
			if i := slices.IndexFunc(changes, func(ch change.Change) bool { return ch.Add != nil && bytes.Equal(ch.Add.Source, entry) }); i >= 0 {
				err = inChange(changes[i], err)
			}
			return false, err
		}
		if !ready {
			return false, nil
		}
	}
	return true, nil
}
