package control

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/planner/mesh"
)

// position makes sure that the step after a rank's token can be served to it:
// nothing to do if it still can, else the job goes there and a new generation begins. No rank
// that joined before goes along if the token is of another branch of the job's history.
func (c *Core) position(j *join, tree *mesh.Tree) error {
	holds := c.holds(j.state, j.token.Digest)
	if holds && !c.moves(j, tree) {
		return c.settle()
	}
	c.note(Info, "job moved", "by", j.req.Rank.String(), "planned", c.plan.Planned(), "done", c.plan.Acked(), "to", j.state.Step, "topology", tree.Canonical())
	since := uint64(0)
	if holds && c.isBeginning(j) {
		// What its constructor heard is exact; an acknowledgement may reach the planner behind
		// the joins at other constructors that followed it.
		if since = j.lastHeard(c.job.generation); since == 0 && c.acks.of[j.req.Rank.DP].Step > j.state.Step {
			since = c.acks.joins[j.req.Rank.DP]
		}
	}
	moved := &Moved{By: &j.req.Rank, To: j.state.Step, WithoutToken: len(j.req.Token) == 0}
	return c.move(j.state, j.token.Digest, tree, moved, since)
}

// moves says whether the job has to move for a rank to go on after its token. It has
// to for a rank that was further: it died, and what it needs again may be let go of at any
// moment. A constructor that took another one's place does not know how far the rank was,
// but its bucket's acknowledgement is still here. And so it has for a rank of another mesh.
func (c *Core) moves(j *join, tree *mesh.Tree) bool {
	held, ok := c.plan.State(j.state.Step)
	further := j.admitted.Generation == c.job.generation && j.admitted.Acked > j.state.Step ||
		c.acks.of[j.req.Rank.DP].Step > j.state.Step
	return !ok || further || !tree.Equal(c.job.tree) || !slices.EqualFunc(held.Pending, j.state.Pending, sameChange)
}

// holds says whether a position is the one that the job has, or had, at its step, if that is
// still known.
func (c *Core) holds(state plan.State, digest [32]byte) bool {
	held, ok := c.plan.State(state.Step)
	known, digested := c.plan.Digest(state.Step)
	return !ok || held.Same(state) && (!digested || known == digest)
}

func offHistory(step int64) error {
	return fault.Userf("the resume token of step %d does not lie on this job's history: it was edited, or made by another version; "+
		"resume from another checkpoint", step)
}

// move has the job go on from a position, for the ranks of a mesh: a new generation begins.
// Of the ranks that joined at that step, those go on that did so after the join `since`.
func (c *Core) move(state plan.State, digest [32]byte, tree *mesh.Tree, moved *Moved, since uint64) error {
	c.rejoinLog(state.Step, digest)
	j, remeshed := &c.job, !tree.Equal(c.job.tree)
	if remeshed {
		c.roster.forget()
		c.raise(onMembers) // where nodes are known, DP ranks may have other constructors
	}
	j.positioned = true
	c.roster.goOn = false
	j.generation++
	c.beginGeneration(state.Step, since)
	j.moved, j.began = moved, nil
	j.tree, j.remesh, j.ended, j.endReason = tree, nil, -1, ""
	clear(j.steps)
	clear(j.saved)
	clear(c.members.wanted)
	clear(c.members.unread)
	c.members.floors.forget()
	c.emit(Recall{})
	c.acks, j.reached = newAcks(), max(j.reached, c.plan.Planned())
	c.reports.upTo, c.reports.from = 0, nil
	c.sources.rewind() // blocks that were read are read again
	c.raise(onMove | onRoster | onRestarted | onPlanned)
	for _, m := range c.members.present() {
		m.has, m.held = 0, nil
		if remeshed {
			c.brief(m)
		}
		c.send(Restart{To: m.session, Generation: j.generation, NextStep: state.Step, Remeshed: remeshed, Moved: moved, Since: since})
	}
	c.tell(plan.Rewind{State: state, Digest: digest})
	return c.failed
}

// settle logs what was planned before the first trainer said that the job goes on
// there.
func (c *Core) settle() error {
	if c.job.positioned {
		return nil
	}
	c.job.positioned = true
	c.raise(onMove)
	var ops []Op
	if len(c.job.history) == 0 || c.job.history[len(c.job.history)-1].Number != c.job.generation {
		c.beginGeneration(c.plan.Acked(), 0)
	}
	for k := c.plan.Acked(); k < c.plan.Planned(); k++ {
		ops = append(ops, c.record(c.job.steps[k]))
	}
	for k := c.plan.Acked() + 1; k <= c.plan.Planned(); k++ {
		if digest, ok := c.plan.Digest(k); ok {
			ops = append(ops, SetDigest{k - 1, digest})
		}
	}
	c.persist(ops...)
	return c.failed
}

// rejoinLog has the log go on from a position, in a branch of its own.
func (c *Core) rejoinLog(step int64, digest [32]byte) {
	if l := &c.log; l.begun && (l.first < l.next || l.next != step) {
		c.persist(Truncate{step, digest})
	}
}

// sameChange compares changes by their written form.
func sameChange(a, b plan.Change) bool { return bytes.Equal(a.Text, b.Text) }

// A change of the topology may name the token it starts from, which is how a job goes on
// with the ranks that are left when others are lost: their checkpoint lies before steps
// that are planned. What was planned after it is void then, and planned again for the new mesh.

// proceedFrom makes a change of the topology at the position of a token, or takes it as
// far as it goes now.
func (c *Core) proceedFrom(ch change.Change, data []byte) (made Reply, done bool, err error) {
	if c.plan == nil {
		c.wait(onMembers)
		return nil, false, nil
	}
	at, err := c.positionOf(data)
	if err != nil {
		return nil, false, err
	}
	if ready, err := c.knowAll(at); !ready || err != nil {
		return nil, false, err
	}
	return c.remeshFrom(ch, at)
}

// remeshFrom makes the change: in the log first, then the job moves.
func (c *Core) remeshFrom(ch change.Change, at *token.Position) (made Reply, done bool, err error) {
	if ch.Step != 0 && ch.Step != at.State.Step {
		return nil, false, fault.Userf("the change is for step %d, and the token that it starts from is of step %d: leave the step out", ch.Step, at.State.Step)
	}
	ch.Step, ch.From = at.State.Step, hex.EncodeToString(at.Digest[:])
	if c.journal.find(ch) >= 0 {
		return ChangeReply{Step: ch.Step}, true, nil // it was asked for before
	}
	if known, err := c.checkLog(at.State.Step, at.Digest); !known || err != nil {
		return nil, false, err
	}
	state, err := c.whole(at)
	if err != nil {
		return nil, false, err
	}
	if c.job.positioned && !c.holds(state, at.Digest) {
		return nil, false, offHistory(state.Step)
	}
	void := func(p plan.Change) bool { return p.Kind == plan.Remesh && p.Step >= ch.Step }
	state.Pending = slices.DeleteFunc(slices.Clone(state.Pending), void)
	core := c.scratch()
	core.Apply(plan.Rewind{State: state})
	p, err := c.resolve(core, ch)
	if err == nil {
		err = core.Check(p)
	}
	if err != nil {
		return nil, false, err
	}
	planned := max(c.plan.Planned(), c.log.steps())
	c.storeFrom(ch, p, at.Digest, void)
	c.enter(ch, p)
	state.Await(p)
	tree := core.MeshAt(state)
	c.note(Info, "job moved", "by", "a change of the topology", "planned", c.plan.Planned(), "to", state.Step, "topology", tree.Canonical())
	moved := &Moved{To: state.Step, Topology: tree.Canonical()}
	return ChangeReply{p.Step, max(planned, p.Step)}, true, c.move(state, at.Digest, tree, moved, 0)
}

// checkLog refuses a position that the log has otherwise, as far as it knows; known is
// false until it is read.
func (c *Core) checkLog(step int64, digest [32]byte) (known bool, err error) {
	if err := c.retained(step); err != nil {
		return false, err
	}
	if !c.log.kept || step == 0 || step > c.log.steps() {
		return true, nil
	}
	logged, ready := c.digest(step - 1)
	if ready && logged.Known && logged.Digest != digest {
		return false, offHistory(step)
	}
	return ready, nil
}

// storeFrom makes a change durable that starts from a token. The log leaves the steps from
// there on first, since their records are of another mesh; then the other changes of the topology
// are taken back that were made for them.
func (c *Core) storeFrom(ch change.Change, p plan.Change, digest [32]byte, void func(plan.Change) bool) {
	ops := []Op{Truncate{p.Step, digest}}
	for _, e := range c.journal.entries {
		if void(e.plan) {
			back := change.Change{Step: e.Step, Cancel: &e.Change, Reason: "its steps are void: the topology changes from a token of step " + strconv.FormatInt(p.Step, 10)}
			c.journal.note(back)
			ops = append(ops, AddChange{back})
		}
	}
	c.journal.entries = slices.DeleteFunc(slices.Clone(c.journal.entries), func(e entry) bool { return void(e.plan) })
	c.persist(append(ops, AddChange{ch})...)
}
