package control

import (
	"errors"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/planner/mesh"
)

// join is a join under way.
type join struct {
	ask         *asked
	req         Join
	constructor *constructor // that was asked how far the rank is
	number      uint64
	admitted    *Admitted       // its answer
	void        bool            // it made the rank's earlier joins void
	goesOn      bool            // it stands where it says, and moves nothing
	elsewhere   bool            // it does not stand where it says: its token counts
	token       *token.Position // what it resumes from
	state       plan.State      // the same, with the changes of the journal
	foreign     bool            // the token has changes that the journal had not, or had in another order
	wait        wait            // for other ranks that join without a token, too
	reply       *JoinReply
}

// proceed takes a join as far as it goes and reports whether it is done. A rank
// may have been here before and died, so its constructor is asked first: it says how
// far that got, and turns away what may still come of the former life. Nothing is turned
// away for a rank that may be refused once it is known what the others do.
func (c *Core) proceed(j *join) (Reply, bool, error) {
	m := c.constructorOf(j.req.Rank.DP)
	switch {
	case c.plan == nil || m == nil || m.held != nil || m.ended: // or it has not heard where the job goes on, or is replaced
		c.wait(onMembers | onMove)
		return nil, false, nil
	case j.constructor != m:
		c.admit(j, m, !c.mayWait(j))
		return nil, false, nil
	case j.admitted == nil:
		c.wait(onMembers)
		return nil, false, nil
	}
	c.wait(onMembers) // the constructor may be lost
	if j.reply == nil {
		if ready, err := c.readyToJoin(j); !ready || err != nil {
			return nil, false, err
		}
		if !j.void {
			c.admit(j, m, true)
			return nil, false, nil
		}
		var err error
		if j.reply, err = c.join(j); err != nil {
			return nil, false, err
		}
	}
	j.reply.Join, j.reply.Constructor = j.number, m.address // another one may have come since
	if !c.inGeneration(j.reply.Generation) {
		c.wait(onRestarted)
		return nil, false, nil
	}
	return *j.reply, true, nil
}

// admit asks a constructor how far a rank is, and may make its earlier joins void.
func (c *Core) admit(j *join, m *constructor, void bool) {
	if j.constructor != nil {
		delete(j.constructor.joins, j.number)
	}
	c.roster.joins++
	j.constructor, j.number, j.admitted, j.void = m, c.roster.joins, nil, void
	m.joins[j.number] = j
	admit := Admit{To: m.session, Join: j.number, Rank: j.req.Rank, OnlyAsks: !void}
	if at := j.req.At; at != nil && !j.elsewhere {
		a := c.roster.entered[j.req.Rank]
		admit.Step, admit.Entered = at.Step, RankEntry{a.join, a.generation, a.step}
	}
	c.send(admit)
	c.wait(onMembers)
}

// admitted hears how far a rank was before it joined again.
func (c *Core) admitted(ev Admitted) {
	m := c.members.constructor(ev.Session)
	if m == nil {
		return
	}
	if j := m.joins[ev.Join]; j != nil {
		j.admitted = &ev
		delete(m.joins, ev.Join)
		j.ask.heard = true
		c.raise(onHeard)
	}
}

// inGeneration reports whether all constructors are in a generation, or a later one. A join
// that moves the job is answered then: of ranks that begin together, once all of them have
// joined, none gets a batch of before the move and is found further than the others.
func (c *Core) inGeneration(generation uint64) bool {
	for _, m := range c.members.constructors {
		if m != nil && m.generation < generation {
			return false
		}
	}
	return true
}

// readyToJoin reads the rank's token, once, has the sources indexed that joined the job
// that it is of, and finds out whether the rank may go on.
func (c *Core) readyToJoin(j *join) (ready bool, err error) {
	if c.beginsAgain(j) {
		j.elsewhere = true
	}
	if j.req.At != nil && !j.elsewhere {
		if ready, err = c.stands(j); err == nil || len(j.req.Token) == 0 || !errors.Is(err, errNotKnown) {
			return ready, err
		}
		j.elsewhere = true
	}
	if j.token == nil {
		if j.token, err = c.positionOf(j.req.Token); err != nil {
			return false, err
		}
	}
	if len(j.req.Token) > 0 {
		if err := c.retained(j.token.State.Step); err != nil {
			return false, err
		}
	}
	if ready, err = c.knowAll(j.token); !ready || err != nil {
		return false, err
	}
	if ready, err = c.granted(j); ready && err == nil {
		err = c.retained(j.token.State.Step)
	}
	return ready && err == nil, err
}

// checkMesh refuses a rank that is not in the mesh at its position. Where a token has that position, no job spec says
// what its mesh is.
func (c *Core) checkMesh(rank, believed Rank, tree *mesh.Tree, byToken bool) error {
	has := tree.Sizes()
	for _, axis := range []struct {
		name         string
		index, asked uint32
		has          int
	}{
		{"dp", rank.DP, believed.DP, has.DP},
		{"cp", rank.CP, believed.CP, has.CP},
		{"pp", rank.PP, believed.PP, has.PP},
		{"tp", rank.TP, believed.TP, has.TP},
	} {
		if other := axis.asked != 0 && int(axis.asked) != axis.has; other && byToken {
			return fault.Userf("the trainer has %s size %d, job %q has %d where its state was saved; start the ranks of that mesh, or have the job go on from this state with others: "+
				"`millrace topology ADDRESS %[1]s=%[2]d --from TOKEN`, or from_token= of Python's millrace.change()", axis.name, axis.asked, c.id.Name, axis.has)
		} else if other {
			return fault.Userf("the trainer has %s size %d, job %q has %d; set topology.%s in the job spec to what the trainer runs with",
				axis.name, axis.asked, c.id.Name, axis.has, axis.name)
		}
		if int(axis.index) >= axis.has {
			return fault.Userf("rank %s=%d is outside the topology of job %q: %s ranks are 0 to %d",
				axis.name, axis.index, c.id.Name, axis.name, axis.has-1)
		}
	}
	return nil
}

// inMesh says whether the mesh of this generation has a rank.
func (c *Core) inMesh(r Rank) bool { return c.checkMesh(r, Rank{}, c.job.tree, false) == nil }

// join positions the job at the rank's token and says where its batches are.
func (c *Core) join(j *join) (*JoinReply, error) {
	if j.goesOn {
		return c.joinAgain(j), nil
	}
	state := j.state
	tree := c.plan.MeshAt(state)
	if c.fetches(j.req.Rank) {
		if err := c.position(j, tree); err != nil {
			return nil, err
		}
		c.enterRank(j)
	}
	reply := c.where(j.req.Rank, j.constructor)
	reply.NextStep, reply.Mesh = state.Step, tree
	reply.Microbatches = c.plan.MicrobatchesAt(state)
	reply.Token = token.Encode(c.id, tree, state, j.token.Digest)
	return &reply, nil
}

// where says which constructor serves a rank.
func (c *Core) where(rank Rank, m *constructor) JoinReply {
	return JoinReply{
		Generation: c.job.generation, Constructor: m.address, Fetches: c.fetches(rank),
		Mesh: c.job.tree, Sources: c.sourceNames()[:c.base()],
	}
}

// fetches says whether a rank asks for batches itself. One that a broadcast serves
// moves nothing when it joins: it has no position.
func (c *Core) fetches(r Rank) bool { return c.cfg.Job.Output.BroadcastAt != "tp" || r.TP == 0 }

// fetchers is the number of ranks that fetch.
func (c *Core) fetchers() int {
	m := c.job.tree.Sizes()
	if c.cfg.Job.Output.BroadcastAt == "tp" {
		m.TP = 1
	}
	return m.DP * m.CP * m.PP * m.TP
}
