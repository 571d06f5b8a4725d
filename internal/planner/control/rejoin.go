package control

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// A rank whose constructor or planner was lost joins again and says where it stands: a step of
// a generation. That takes neither a token nor a digest, and moves nothing: the rank goes on,
// or it is refused.

// beginGeneration notes that the generation begins, before anyone hears of it.
// Ranks that entered there after the join since go on in it.
func (c *Core) beginGeneration(step int64, since uint64) {
	g := Generation{c.job.generation, step, since}
	c.job.history = append(slices.Clip(c.job.history), g)
	c.persist(BeginGeneration{g})
}

// stands finds out whether a rank goes on where it says that it stands. ready is false
// while that is not known, or not planned again.
func (c *Core) stands(j *join) (ready bool, err error) {
	j.goesOn = false
	at, rank := *j.req.At, j.req.Rank
	if err := c.onHistory(j, at); err != nil {
		if errors.Is(err, ErrMoved) && c.holderComes(rank) {
			c.wait(onMembers) // its constructor may know that it goes along
			return false, nil
		}
		return false, err
	}
	c.roster.stands[rank] = j
	if !c.located(at.Step) {
		c.wait(onMembers | onMove | onPlanned)
		return false, c.failed
	}
	if err := c.checkMesh(rank, j.req.Sizes, c.job.tree, false); err != nil {
		return false, err
	}
	state, held := c.plan.State(at.Step)
	switch {
	case held:
	case at.Step < c.plan.Acked():
		return false, fault.Userf("%s stands at step %d, and all ranks said that they are done with the steps before %d: resume all ranks from the same checkpoint", rank, at.Step, c.plan.Acked())
	case at.Step <= c.takenTo(at): // what is planned next may wait for it to say so to its constructor
		state, _ = c.plan.State(c.plan.Planned())
		state.Step = at.Step
	case at.Step > max(c.plan.Planned(), c.log.steps(), c.job.reached):
		return false, fault.Userf("%s stands at step %d, and %w: no step after %d was planned; it is of another job, or of another log: resume all ranks from the same checkpoint", rank, at.Step, errNotKnown, c.plan.Planned())
	default:
		c.wait(onMove | onPlanned)
		return false, nil
	}
	digest, digested := c.plan.Digest(at.Step)
	if j.state, j.goesOn = state, true; digested {
		j.token = &token.Position{Digest: digest}
	}
	return true, nil
}

// takenTo is how far a rank may be that was taken along into the last generation: it has steps of those before. In
// each of them, steps were planned ahead of a rank that had been taken along itself, or was lost since. 0 for a rank
// of this generation.
func (c *Core) takenTo(at Position) int64 {
	if at.Generation == c.job.history[len(c.job.history)-1].Number {
		return 0
	}
	return c.alongTo()
}

// alongTo is that of all ranks that were taken along; 0 if there is no generation yet.
func (c *Core) alongTo() int64 {
	h := c.job.history
	if len(h) == 0 {
		return 0
	}
	return h[len(h)-1].Step + c.cfg.Plan.Ahead*int64(len(h)+1)
}

// holderComes says whether the constructor that a rank had in an earlier life has yet to say what it knows.
func (c *Core) holderComes(rank Rank) bool {
	m := c.constructorOf(rank.DP)
	return c.take.begun && (m == nil && !c.take.settled || m != nil && m.held != nil)
}

// beginsAgain says whether a rank that stands somewhere is to say by its token where the job
// goes on: no generation goes on here, and whoever waits for one would wait for ever.
func (c *Core) beginsAgain(j *join) bool {
	return len(j.req.Token) > 0 && c.plan != nil && !c.job.positioned && !c.take.begun
}

// errNotKnown is part of the error of a position that is of another life: there a token counts, if the
// rank has it. Of a position that is known, and where nothing goes on, it does not: the rank asked a while
// ago, and is further by now, or the job was moved since; its token would take all ranks back.
var errNotKnown = errors.New("this service does not know that")

// onHistory refuses a position that is not one of this job's history, or from which the
// job has moved since.
func (c *Core) onHistory(j *join, at Position) error {
	h := c.job.history
	i := slices.IndexFunc(h, func(g Generation) bool { return g.Number == at.Generation })
	if i < 0 || at.Step < h[i].Step {
		return fault.Userf("%s stands at step %d of generation %d, and %w: it was started without the log of the one before; "+
			"resume all ranks from the same checkpoint", j.req.Rank, at.Step, at.Generation, errNotKnown)
	}
	for _, g := range h[i+1:] {
		if at.Step > g.Step && (c.branched(g) || !c.wentAlong(j) && !c.beganWith(j.req.Rank, at, g)) {
			return c.movedOn(g, j.req.Rank, at)
		}
	}
	return nil
}

// ErrMoved is part of the error of a rank that the job does not take along to where it was moved.
var ErrMoved = errors.New("the job was moved")

// movedOn is that error: who moved the job, as far as this planner knows, and what to do.
func (c *Core) movedOn(g Generation, rank Rank, at Position) error {
	by := ""
	if m := c.job.moved; g.Number == c.job.generation && m != nil {
		switch {
		case m.Topology != "":
			by = fmt.Sprintf(", by a change of the topology to %s", m.Topology)
		case m.WithoutToken:
			by = fmt.Sprintf(", by %s, which joined without a resume token", m.By)
		default:
			by = fmt.Sprintf(", by %s, which joined with the token of another checkpoint", m.By)
		}
	}
	return fault.As(fault.User, fmt.Errorf("%w to step %d since %s joined%s, and it stands at step %d: restart all ranks from the same checkpoint", ErrMoved, g.Step, rank, by, at.Step))
}

// wentAlong says whether a rank was taken along when this generation began: it has done steps
// of it.
func (c *Core) wentAlong(j *join) bool {
	return c.job.positioned && j.admitted.Generation == c.job.generation && j.admitted.Acked > c.job.history[len(c.job.history)-1].Step
}

// beganWith says whether a rank was being restarted together with the one that a generation began
// for: its constructor takes it along by the same rule (adoptable), and may die before the rank, or
// anyone else, hears of it.
func (c *Core) beganWith(rank Rank, at Position, g Generation) bool {
	a, joined := c.roster.entered[rank]
	return joined && g.Since > 0 && a.join > g.Since && a.step == g.Step && a.generation <= at.Generation
}

// branched says whether a generation began with other steps than were there before.
func (c *Core) branched(g Generation) bool {
	return slices.ContainsFunc(c.journal.entries, func(e entry) bool { return e.plan.Kind == plan.Remesh && e.plan.Step == g.Step })
}

// joinAgain lets a rank go on where it stands.
func (c *Core) joinAgain(j *join) *JoinReply {
	if c.fetches(j.req.Rank) {
		c.arrived(j)
	}
	reply := c.where(j.req.Rank, j.constructor)
	reply.NextStep, reply.Microbatches = j.state.Step, c.plan.MicrobatchesAt(j.state)
	if j.token != nil {
		reply.Token = token.Encode(c.id, c.plan.MeshAt(j.state), j.state, j.token.Digest)
	}
	return &reply
}
