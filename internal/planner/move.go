package planner

import (
	"bytes"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/planner/mesh"
)

// position makes sure that the step after a rank's token can be served to it:
// nothing to do if it still can, else the job goes there and a new generation begins.
func (p *Planner) position(j *joining, tree *mesh.Tree) error {
	if !p.moves(j, tree) {
		switch differs := !p.holds(j.state, j.token.Digest); {
		case !differs:
			return p.settle()
		case p.positioned:
			return offHistory(j.state.Step)
		}
	}
	p.opts.Log.Info("job moved", "job", p.id.name, "by", j.req.Rank.Name(), "planned", p.core.Planned(), "done", p.core.Acked(), "to", j.state.Step, "topology", tree.Canonical())
	since := uint64(0)
	if p.isBeginning(j) {
		since = j.lastHeard(p.generation)
	}
	moved := &pb.Moved{By: j.req.Rank, To: uint64(j.state.Step), WithoutToken: len(j.req.Token) == 0}
	return p.move(j.state, j.token.Digest, tree, moved, since)
}

// moves says whether the job has to move for a rank to go on after its token. It has
// to for a rank that was further: it died, and what it needs again may be let go of at any
// moment. And so it has for a rank of another mesh.
func (p *Planner) moves(j *joining, tree *mesh.Tree) bool {
	held, ok := p.core.State(j.state.Step)
	further := j.admitted.Generation == p.generation && int64(j.admitted.Acked) > j.state.Step
	return !ok || further || !tree.Equal(p.tree) || !slices.EqualFunc(held.Pending, j.state.Pending, sameChange)
}

// holds says whether a position is the one that the job has, or had, at its step, if that is
// still known.
func (p *Planner) holds(state plan.State, digest [32]byte) bool {
	held, ok := p.core.State(state.Step)
	known, digested := p.core.Digest(state.Step)
	return !ok || held.Same(state) && (!digested || known == digest)
}

func offHistory(step int64) error {
	return fault.Userf("the resume token of step %d does not lie on this job's history: it was edited, or made by another version; "+
		"resume from another checkpoint", step)
}

// move has the job go on from a position, for the ranks of a mesh: a new generation begins.
// Of the ranks that joined at that step, those go on that did so after the join `since`.
func (p *Planner) move(state plan.State, digest [32]byte, tree *mesh.Tree, moved *pb.Moved, since uint64) error {
	p.positioned = true
	if err := p.rejoinLog(state.Step); err != nil {
		return err
	}
	remeshed := !tree.Equal(p.tree)
	if remeshed {
		p.roster.forget()
	}
	p.generation++
	p.moved, p.began = moved, nil
	p.tree, p.remesh, p.ended, p.endReason = tree, nil, -1, ""
	clear(p.steps)
	clear(p.saved)
	clear(p.wanted)
	p.later = nil
	clear(p.acks)
	p.measures.upTo, p.measures.from = 0, nil
	for i := range p.ledger {
		clear(p.ledger[i].epochSkips) // blocks that were read are read again
	}
	for _, c := range p.constructors {
		if c == nil {
			continue
		}
		if remeshed {
			p.brief(c)
		}
		c.out.Put(&pb.ConstructorOrder{Order: &pb.ConstructorOrder_Restart{
			Restart: &pb.Restart{Generation: p.generation, NextStep: uint64(state.Step), Remeshed: remeshed, Moved: p.moved, Since: since},
		}})
	}
	p.apply(plan.Rewind{State: state, Digest: digest})
	return p.failed
}

// settle logs what was planned before the first trainer said that the job goes on
// there.
func (p *Planner) settle() error {
	if p.positioned {
		return nil
	}
	p.positioned = true
	for k := p.core.Acked(); k < p.core.Planned(); k++ {
		if err := p.record(p.steps[k]); err != nil {
			p.fail(err)
			return err
		}
	}
	for k := p.core.Acked() + 1; k <= p.core.Planned(); k++ {
		if digest, ok := p.core.Digest(k); ok {
			p.digested(k, digest)
		}
	}
	return p.failed
}

// rejoinLog prepares the log to go on at step. Steps that it holds will be
// compared as they are planned again; a gap cannot be kept.
func (p *Planner) rejoinLog(step int64) error {
	if p.log == nil {
		return nil
	}
	first, ok := p.log.First()
	last, _ := p.log.Last()
	if !ok || (step >= first && step <= last+1) {
		return nil
	}
	p.opts.Log.Warn("the log starts anew: the job moved to a step that does not follow what it holds",
		"step", step, "first", first, "last", last)
	return p.log.Truncate(first)
}

// sameChange compares changes by their written form.
func sameChange(a, b plan.Change) bool { return bytes.Equal(a.Text, b.Text) }
