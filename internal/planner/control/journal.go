package control

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// journal are the changes that were made to the job.
type journal struct {
	entries   []entry         // in force or to be, as they were made
	made      []string        // all so far in JSON, those that were cancelled and those that did among them
	cancelled []change.Change // those that were
	bans      []plan.Ban      // all bans, whether in force or not

	// Before the job starts.
	restored []change.Change // of the log, then of the options
	logged   int             // how many of them are the log's
	prepared int             // how many of them are ready to be made
	fresh    []change.Change // cancelled, or cancelling, and not in the log yet
}

// entry is a change of the journal: as it was made, and as the core of steps has it.
type entry struct {
	change.Change
	plan plan.Change
}

// find finds a change that is in force or will be, the last of several, or returns
// -1.
func (j *journal) find(c change.Change) int {
	for i, e := range slices.Backward(j.entries) {
		if e.Equal(c) {
			return i
		}
	}
	return -1
}

// wasCancelled says whether a change was cancelled.
func (j *journal) wasCancelled(c change.Change) bool {
	return slices.ContainsFunc(j.cancelled, c.Equal)
}

// merge says which changes of the journal the position of a token awaits, and which are made behind them: fresh ones, as
// the order of the token wants it. Those of the journal that are among these are to be taken back first.
func (j *journal) merge(pending []change.Change, step int64) (have, back []entry, fresh []change.Change) {
	var left []entry
	var due []change.Change
	for _, e := range j.entries {
		if e.Step >= step {
			left, due = append(left, e), append(due, e.Change)
		}
	}
	if len(pending) == 0 {
		return left, nil, nil
	}
	slices.SortStableFunc(left, func(a, b entry) int { return cmp.Compare(a.Step, b.Step) })
	all := change.Merge(pending, due, j.wasCancelled)
	change.Sort(all)
	stays := true // those of this step so far
	for i, ch := range all {
		stays = (stays || all[i-1].Step < ch.Step) && len(left) > 0 && left[0].Equal(ch)
		if stays {
			have, left = append(have, left[0]), left[1:]
			continue
		}
		if at := slices.IndexFunc(left, func(e entry) bool { return e.Equal(ch) }); at >= 0 {
			ch.Origin = left[at].Origin
			back, left = append(back, left[at]), slices.Delete(left, at, at+1)
		}
		fresh = append(fresh, ch)
	}
	return have, back, fresh
}

// note enters a change that the core of steps never hears of: one that was cancelled,
// or that cancels.
func (j *journal) note(c change.Change) {
	j.made = append(j.made, c.String())
	if c.Cancel != nil {
		j.cancelled = append(j.cancelled, *c.Cancel)
	}
}

// takeBack notes that a change cancels another one of the journal.
func (j *journal) takeBack(cancel change.Change) {
	i := j.find(*cancel.Cancel)
	j.entries = slices.Delete(slices.Clone(j.entries), i, i+1)
	j.note(cancel)
}

// banOf is the ban of a record, with the number that it has in this service.
func (j *journal) banOf(source int32, file string, row int64) plan.Ban {
	for _, b := range j.bans {
		if b.Source == source && b.File == file && b.Row == row {
			return b
		}
	}
	return plan.Ban{ID: uint32(len(j.bans)), Source: source, File: file, Row: row}
}

// ban tells the loaders of a banned record, once.
func (c *Core) ban(b plan.Ban) {
	if int(b.ID) < len(c.journal.bans) {
		return
	}
	c.journal.bans = append(c.journal.bans, b)
	if c.out.bans++; c.out.bans > 1 {
		return // they hear of all of this event at once
	}
	for _, l := range c.members.loaders {
		c.emit(Bans{l.session, nil})
	}
}

// listBans has the effects of this event that tell of bans tell of all.
func (c *Core) listBans() {
	if c.out.bans == 0 {
		return
	}
	c.out.bans = 0
	for i, e := range c.out.now {
		if b, ok := e.(Bans); ok {
			c.out.now[i] = Bans{b.To, slices.Clip(c.journal.bans)}
		}
	}
}

// BannedRecords are all banned records, whether in force or not.
func (c *Core) BannedRecords() []plan.Ban { return c.journal.bans }

// enter takes a change into the journal, and tells those who have to know before
// the core of steps acts upon it.
func (c *Core) enter(ch change.Change, p plan.Change) {
	c.note(Info, "change", "change", string(p.Text))
	c.journal.entries = append(c.journal.entries, entry{ch, p})
	c.journal.made = append(c.journal.made, string(p.Text))
	switch p.Kind {
	case plan.BanSample:
		c.ban(p.Ban)
	case plan.AddSource:
		c.joinedUpTo(1 + c.sources.entry(p.Add.Spec))
	case plan.Remesh:
		c.raise(onMove) // a rank that stands further than its step is of another branch from now on
	}
}

// maker says where a change comes from that is made before its step is near.
type maker int

const (
	byLog   maker = iota // an earlier life of the log: it was checked then
	byToken              // an earlier life, which may have had another log
	byUser               // it is new
)

// resume enters changes in the journal and makes them part of a position: all or, if one is refused,
// none. The sources that they add are indexed.
func (c *Core) resume(state *plan.State, changes []change.Change, by maker) error {
	if by != byLog {
		if err := c.checkAll(state.Clone(), changes, by); err != nil {
			return err
		}
	}
	var ops []Op
	err := c.resolveAll(state, changes, func(_ *plan.Core, ch change.Change, p plan.Change) error {
		c.enter(ch, p)
		ops = append(ops, AddChange{ch})
		return nil
	})
	if err == nil && by != byLog {
		c.persist(ops...)
	}
	return err
}

// checkAll says why changes cannot be made one after the other.
func (c *Core) checkAll(state plan.State, changes []change.Change, by maker) error {
	return c.resolveAll(&state, changes, func(at *plan.Core, _ change.Change, p plan.Change) error {
		if by == byUser {
			if err := c.unlogged(p); err != nil {
				return err
			}
		}
		return at.Check(p)
	})
}

// resolveAll resolves changes one after the other, and has a position await those that take accepts.
func (c *Core) resolveAll(state *plan.State, changes []change.Change, take func(at *plan.Core, ch change.Change, p plan.Change) error) error {
	if len(changes) == 0 {
		return nil // as with nearly all ranks that join
	}
	at := c.scratch()
	var taken []plan.Change // that the position does not await yet
	for i, ch := range changes {
		if i == 0 || changes[i-1].Ban == nil { // no change depends on a ban, of which there may be thousands
			state.Await(taken...)
			taken = nil
			at.Apply(plan.Rewind{State: *state})
		}
		p, err := c.resolve(at, ch)
		if err == nil {
			err = take(at, ch, p)
		}
		if err != nil {
			return inChange(ch, err)
		}
		taken = append(taken, p)
	}
	state.Await(taken...)
	return nil
}

// inChange names the change that an error is about.
func inChange(ch change.Change, err error) error {
	return fault.As(fault.ClassOf(err), fmt.Errorf("%sthe change %s: %w", ch.Origin, ch, err))
}

// unlogged refuses a change that would make a step another one than the log has.
func (c *Core) unlogged(p plan.Change) error {
	if n := c.log.steps(); p.Step < n {
		return fault.Userf("the log in %s has the steps before %d already: valid is step %d or later, or a log folder of its own", c.log.dir, n, n)
	}
	return nil
}

// logOpened takes the changes of the log's earlier life, and those of the options that it
// does not have.
func (c *Core) logOpened(ev LogOpened) {
	if ev.Err != nil {
		c.fail(ev.Err)
		return
	}
	c.log.opened, c.log.kept, c.log.dir, c.log.first, c.log.next = true, ev.Kept, ev.Dir, ev.First, ev.Next
	c.log.begun, c.log.trimmed = ev.First < ev.Next, ev.Trimmed
	c.raise(onLog)
	c.goOn(ev)
	fresh := change.Without(c.cfg.Changes, ev.Changes)
	change.Sort(fresh)
	if err := c.dropCancelled(append(slices.Clip(ev.Changes), fresh...), len(ev.Changes)); err != nil {
		c.fail(err)
		return
	}
	c.start()
}

// dropCancelled leaves out of the changes before the start those that were cancelled. The
// first n are the log's.
func (c *Core) dropCancelled(changes []change.Change, n int) error {
	gone, err := change.Cancelled(changes)
	if err != nil {
		return err
	}
	j, logged := &c.journal, c.log.steps()
	for i, ch := range changes {
		switch {
		case !gone[i] && i < n:
			j.logged++
			fallthrough
		case !gone[i]:
			j.restored = append(j.restored, ch)
		case i < n:
			j.note(ch)
		case ch.Cancel != nil && ch.Step < logged && slices.ContainsFunc(changes[:n], ch.Cancel.Equal):
			return fault.Userf("%sthe change %s comes too late: the log in %s has the steps before %d already", ch.Origin, ch, c.log.dir, logged)
		default:
			j.fresh = append(j.fresh, ch)
		}
	}
	return nil
}

// persistCancelled makes those durable that were made before the start and cancelled there.
func (c *Core) persistCancelled() {
	for _, ch := range c.journal.fresh {
		c.persist(AddChange{ch})
		c.journal.note(ch)
	}
	c.journal.fresh = nil
}

// prepareChanges has the sources indexed that changes before the start add, and
// the files found that they mean. Until that is done it reports false and is to be
// asked again.
func (c *Core) prepareChanges() (ready bool, err error) {
	j := &c.journal
	for ; j.prepared < len(j.restored); j.prepared++ {
		ch := &j.restored[j.prepared]
		switch {
		case ch.Add != nil:
			c.trustEntry(*ch)
			n := 0
			for _, before := range j.restored[:j.prepared] {
				if before.Add != nil {
					n++
				}
			}
			ready, err = c.know(n, ch.Add.Source)
		case ch.Ban != nil:
			if ready, err = c.find(ch); ready && j.prepared >= j.logged && slices.ContainsFunc(j.restored[:j.logged], ch.Equal) {
				j.restored = slices.Delete(j.restored, j.prepared, j.prepared+1)
				j.prepared--
			}
		default:
			ready = true
		}
		if err != nil {
			return false, inChange(*ch, err)
		}
		if !ready {
			return false, nil
		}
	}
	return true, nil
}
