package planner

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/planner/jobspec"
	"github.com/millrace-data/millrace/planner/place"
	"github.com/millrace-data/millrace/planner/plan"
	pb "github.com/millrace-data/millrace/proto"
)

// Join implements the Planner service.
func (p *Planner) Join(ctx context.Context, req *pb.JoinRequest) (*pb.JoinReply, error) {
	if err := p.checkJoin(req); err != nil {
		return nil, rpc.ToStatus(err)
	}
	ctx, cancel := rpc.Early(ctx)
	defer cancel()
	j := &joining{req: req}
	err := p.ask(ctx, func() bool { return p.proceed(j) })
	if err != nil {
		err = p.waitedFor(ctx, err)
	}
	return j.reply, rpc.ToStatus(cmp.Or(err, j.refused))
}

// Locate implements the Planner service.
func (p *Planner) Locate(ctx context.Context, req *pb.LocateRequest) (*pb.JoinReply, error) {
	if err := p.checkJoin(req); err != nil {
		return nil, rpc.ToStatus(err)
	}
	ctx, cancel := rpc.Early(ctx)
	defer cancel()
	var reply *pb.JoinReply
	var refused error
	err := p.ask(ctx, func() bool {
		c := p.constructors[p.constructorOf(req.Rank.GetDp())]
		switch {
		case p.failed != nil:
			refused = rpc.Final(p.failed)
		case p.core == nil || c == nil:
			return false
		default:
			if refused = p.checkMesh(req.Rank, &pb.Mesh{}, p.tree); refused == nil {
				reply = p.where(req.Rank, c)
			}
		}
		return true
	})
	if err != nil {
		err = p.waitedFor(ctx, err)
	}
	return reply, rpc.ToStatus(cmp.Or(err, refused))
}

// where says of a rank what does not depend on how far it is.
func (p *Planner) where(rank *pb.Coordinates, c *constructorSession) *pb.JoinReply {
	return &pb.JoinReply{
		Job: p.id.name, Identity: p.id.spec[:],
		Generation:  p.generation,
		Constructor: c.address,
		Fetches:     p.opts.Job.Output.BroadcastAt != "tp" || rank.GetTp() == 0,
		Format:      p.opts.Job.Output.Format,
		Sources:     p.sourceNames()[:p.base()],
		Mesh:        p.mesh(),
		Ahead:       uint32(p.opts.Prefetch),
	}
}

// joining is a join under way.
type joining struct {
	req         *pb.JoinRequest
	constructor *constructorSession // that was asked how far the rank is
	number      uint64
	admitted    *pb.Admitted // its answer
	token       *position    // what it resumes from

	reply   *pb.JoinReply
	refused error
}

// proceed takes a join as far as it goes and reports whether it is done. A rank
// may have been here before and died, so its constructor is asked first: it
// turns away what may still come of the former life, and says how far that got.
func (p *Planner) proceed(j *joining) bool {
	c := p.constructors[p.constructorOf(j.req.Rank.GetDp())]
	switch {
	case p.failed != nil:
		j.refused = rpc.Final(p.failed)
		return true
	case p.core == nil || c == nil:
		return false
	case j.constructor != c:
		p.joins++
		j.constructor, j.number, j.admitted = c, p.joins, nil
		c.joining[j.number] = j
		c.out.Put(&pb.ConstructorOrder{Order: &pb.ConstructorOrder_Admit{Admit: &pb.Admit{Join: j.number, Rank: j.req.Rank}}})
		return false
	case j.admitted == nil:
		return false
	}
	if j.reply == nil {
		ready, err := p.prepare(j)
		if err != nil || !ready {
			j.refused = err
			return err != nil
		}
		if j.reply, j.refused = p.join(j); j.refused != nil {
			return true
		}
	}
	return p.restarted(j.reply.Generation)
}

// restarted reports whether all constructors are in a generation, or a later one. A join
// that moves the job is answered then: of ranks that begin together, once all of them have
// joined, none gets a batch of before the move and is found further than the others.
func (p *Planner) restarted(generation uint64) bool {
	return !slices.ContainsFunc(p.constructors, func(c *constructorSession) bool { return c != nil && c.generation < generation })
}

// prepare reads the rank's token, once, and has the sources indexed that joined
// the job that it is of.
func (p *Planner) prepare(j *joining) (ready bool, err error) {
	if j.token == nil {
		j.token = &position{state: plan.Start(p.base()), digest: p.root()}
		if len(j.req.Token) > 0 {
			if j.token, err = decodeToken(p.id, j.req.Token, p.limited[:p.base()]); err != nil {
				return false, err
			}
		}
	}
	entries := j.token.entries()
	for n, entry := range entries {
		if ready, err := p.know(n, entry); !ready || err != nil {
			return false, err
		}
	}
	return true, nil
}

// admitted hears how far a rank was before it joined again.
func (p *Planner) admitted(c *constructorSession, a *pb.Admitted) {
	if j := c.joining[a.Join]; j != nil {
		j.admitted = a
		delete(c.joining, a.Join)
	}
}

// checkJoin refuses a rank that does not fit the job, without looking at state.
func (p *Planner) checkJoin(req interface {
	GetJob() string
	GetIdentity() []byte
}) error {
	if req.GetJob() != "" && req.GetJob() != p.id.name {
		return fault.Userf("the trainer asks for job %q, this service runs %q; connect it to the right address", req.GetJob(), p.id.name)
	}
	if len(req.GetIdentity()) > 0 && !bytes.Equal(req.GetIdentity(), p.id.spec[:]) {
		return fault.Userf("the trainer was made for spec %x, this service runs job %q with spec %x; "+
			"start the service with the trainer's spec, or drop the identity from connect()", head(req.GetIdentity()), p.id.name, p.id.spec[:6])
	}
	return nil
}

// checkMesh refuses a rank that is none of the mesh at its position.
func (p *Planner) checkMesh(rank *pb.Coordinates, believed *pb.Mesh, tree *place.Tree) error {
	mesh := meshProto(tree)
	for _, axis := range []struct {
		name              string
		index, asked, has uint32
	}{
		{"dp", rank.GetDp(), believed.GetDp(), mesh.Dp},
		{"cp", rank.GetCp(), believed.GetCp(), mesh.Cp},
		{"pp", rank.GetPp(), believed.GetPp(), mesh.Pp},
		{"tp", rank.GetTp(), believed.GetTp(), mesh.Tp},
	} {
		if axis.asked != 0 && axis.asked != axis.has {
			return fault.Userf("the trainer has %s size %d, job %q has %d; set topology.%s in the job spec to what the trainer runs with",
				axis.name, axis.asked, p.id.name, axis.has, axis.name)
		}
		if axis.index >= axis.has {
			return fault.Userf("rank %s=%d is outside the topology of job %q: %s ranks are 0 to %d",
				axis.name, axis.index, p.id.name, axis.name, axis.has-1)
		}
	}
	return nil
}

func (p *Planner) constructorOf(dp uint32) int { return int(dp) % len(p.constructors) }

// join positions the job at the rank's token and says where its batches are.
func (p *Planner) join(j *joining) (*pb.JoinReply, error) {
	req := j.req
	state, err := p.whole(j.token)
	if err != nil {
		return nil, err
	}
	tree := p.core.MeshAt(state)
	if err := p.checkMesh(req.Rank, req.Mesh, tree); err != nil {
		return nil, err
	}
	before := int64(0) // steps that the rank was done with before, in this generation
	if j.admitted.Generation == p.generation {
		before = int64(j.admitted.Acked)
	}
	if err := p.position(req, before, state, j.token.digest, tree); err != nil {
		return nil, err
	}
	reply := p.where(req.Rank, p.constructors[p.constructorOf(req.Rank.GetDp())])
	reply.NextStep, reply.Join = uint64(state.Step), j.number
	reply.Microbatches = uint32(p.core.MicrobatchesAt(state))
	reply.Token = encodeToken(p.id, meshProto(tree), state, j.token.digest, p.limited)
	return reply, nil
}

func (p *Planner) sourceNames() []string { return namesOf(p.sources) }

func namesOf(sources []jobspec.Source) []string {
	names := make([]string, len(sources))
	for i, s := range sources {
		names[i] = s.Name
	}
	return names
}

// position makes sure that the step after state can be served to a rank that joins and was
// done with `before` steps: nothing to do if it still can, else the job goes to
// state and a new generation begins. So it does for a rank that was further: it
// died, and what it needs again may be let go of at any moment. And so it does
// for a rank of another mesh.
func (p *Planner) position(req *pb.JoinRequest, before int64, state plan.State, digest [32]byte, tree *place.Tree) error {
	if held, ok := p.core.State(state.Step); ok && before <= state.Step && tree.Equal(p.tree) && slices.EqualFunc(held.Pending, state.Pending, sameChange) {
		known, digested := p.core.Digest(state.Step)
		switch differs := !same(held, state) || (digested && known != digest); {
		case !differs:
			return p.settle()
		case p.positioned:
			return fault.Userf("the resume token of step %d does not lie on this job's history: it was edited, or made by another version; "+
				"resume from another checkpoint", state.Step)
		}
	}
	p.positioned = true
	p.opts.Log.Info("job moved", "job", p.id.name, "by", req.Rank.Name(), "planned", p.core.Planned(), "done", p.core.Acked(), "to", state.Step, "topology", tree.Canonical())
	if err := p.rejoinLog(state.Step); err != nil {
		return err
	}
	remeshed := !tree.Equal(p.tree)
	p.generation++
	p.moved = &pb.Moved{By: req.Rank, To: uint64(state.Step), WithoutToken: len(req.Token) == 0}
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
			Restart: &pb.Restart{Generation: p.generation, NextStep: uint64(state.Step), Remeshed: remeshed, Moved: p.moved},
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

// same says whether two positions are one. Changes that are pending are not
// compared: one may have been made since the other was saved.
func same(a, b plan.State) bool {
	if a.Step != b.Step || !slices.Equal(a.Carry, b.Carry) || !slices.Equal(a.Held, b.Held) || len(a.Cursors) != len(b.Cursors) {
		return false
	}
	a.Settings.Weights, b.Settings.Weights = nil, nil // a token may have only the shares
	a.Settings.Skips, b.Settings.Skips = nil, nil     // and no plan depends on them
	if !proto.Equal(packSettings(a.Settings), packSettings(b.Settings)) {
		return false
	}
	for i, c := range a.Cursors {
		c.Samples, c.Tokens = b.Cursors[i].Samples, b.Cursors[i].Tokens // no plan depends on them, and a token may have rounded the latter
		if c != b.Cursors[i] {
			return false
		}
	}
	return true
}

// root is the chain value before the first step.
func (p *Planner) root() [32]byte { return batch.Root(p.id.spec, p.id.manifest) }
