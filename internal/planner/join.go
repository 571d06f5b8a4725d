package planner

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/mesh"
)

// Join implements the Planner service.
func (p *Planner) Join(ctx context.Context, req *pb.JoinRequest) (*pb.JoinReply, error) {
	if err := cmp.Or(p.checkJoin(req), checkStart(req)); err != nil {
		return nil, rpc.ToStatus(err)
	}
	ctx, cancel := rpc.Early(ctx)
	defer cancel()
	j := &joining{req: req, rank: placeOf(req.Rank)}
	err := p.ask(ctx, func() bool { return p.proceed(j) })
	if err != nil {
		err = p.waitedFor(ctx, err)
		_ = p.do(context.WithoutCancel(ctx), func() { p.roster.leave(j) }) // it fails when there is no planner any more
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
		Fetches:     p.fetches(rank),
		Format:      p.opts.Job.Output.Format,
		Sources:     p.sourceNames()[:p.base()],
		Mesh:        wireMesh(p.tree),
		Ahead:       uint32(p.opts.Prefetch),
	}
}

// joining is a join under way.
type joining struct {
	req         *pb.JoinRequest
	rank        coordinates
	constructor *constructorSession // that was asked how far the rank is
	number      uint64
	admitted    *pb.Admitted    // its answer
	void        bool            // it made the rank's earlier joins void
	token       *token.Position // what it resumes from
	state       plan.State      // the same, with the changes of the journal
	foreign     bool            // the token has changes that the journal had not
	wait        wait            // for other ranks that join without a token, too

	reply   *pb.JoinReply
	refused error
}

// proceed takes a join as far as it goes and reports whether it is done. A rank
// may have been here before and died, so its constructor is asked first: it says how
// far that got, and turns away what may still come of the former life. Nothing is turned
// away for a rank that may be refused once it is known what the others do.
func (p *Planner) proceed(j *joining) (done bool) {
	defer func() {
		if done {
			p.roster.leave(j)
		}
	}()
	c := p.constructors[p.constructorOf(j.req.Rank.GetDp())]
	switch {
	case p.failed != nil:
		j.refused = rpc.Final(p.failed)
		return true
	case p.core == nil || c == nil:
		return false
	case j.constructor != c:
		p.admit(j, c, !p.mayWait(j))
		return false
	case j.admitted == nil:
		return false
	}
	if j.reply == nil {
		ready, err := p.prepare(j)
		if ready && err == nil {
			ready, err = p.granted(j)
		}
		if err != nil || !ready {
			j.refused = err
			return err != nil
		}
		if !j.void {
			p.admit(j, c, true)
			return false
		}
		if j.reply, j.refused = p.join(j); j.refused != nil {
			return true
		}
	}
	j.reply.Join, j.reply.Constructor = j.number, c.address // another one may have come since
	return p.restarted(j.reply.Generation)
}

// admit asks a constructor how far a rank is, and may make its earlier joins void.
func (p *Planner) admit(j *joining, c *constructorSession, void bool) {
	p.joins++
	j.constructor, j.number, j.admitted, j.void = c, p.joins, nil, void
	c.joining[j.number] = j
	c.out.Put(&pb.ConstructorOrder{Order: &pb.ConstructorOrder_Admit{Admit: &pb.Admit{Join: j.number, Rank: j.req.Rank, OnlyAsks: !void}}})
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
		if j.token, err = p.positionOf(j.req.Token); err != nil {
			return false, err
		}
	}
	return p.knowAll(j.token)
}

// positionOf reads a resume token; none is the first step.
func (p *Planner) positionOf(data []byte) (*token.Position, error) {
	if len(data) == 0 {
		return &token.Position{State: plan.Start(p.base()), Digest: p.root()}, nil
	}
	return token.Decode(p.id.job(p.limited), data)
}

// knowAll has the sources indexed that joined the job that a token is of.
func (p *Planner) knowAll(t *token.Position) (ready bool, err error) {
	for n, entry := range t.Entries() {
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

// checkStart refuses a rank that names two positions.
func checkStart(req *pb.JoinRequest) error {
	if req.Start == pb.Start_START_BEGINNING && len(req.Token) > 0 {
		return fault.Userf("%s joins with a resume token and says that it begins at the first step: leave one of both out", req.Rank.Name())
	}
	return nil
}

// checkMesh refuses a rank that is none of the mesh at its position.
func (p *Planner) checkMesh(rank *pb.Coordinates, believed *pb.Mesh, tree *mesh.Tree) error {
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
	req, state := j.req, j.state
	tree := p.core.MeshAt(state)
	if p.fetches(req.Rank) {
		if err := p.position(j, tree); err != nil {
			return nil, err
		}
		p.enterRank(j)
	}
	reply := p.where(req.Rank, p.constructors[p.constructorOf(req.Rank.GetDp())])
	reply.NextStep, reply.Join, reply.Mesh = uint64(state.Step), j.number, wireMesh(tree)
	reply.Microbatches = uint32(p.core.MicrobatchesAt(state))
	reply.Token = token.Encode(p.id.job(p.limited), tree, state, j.token.Digest)
	return reply, nil
}

// fetches says whether a rank asks for batches itself. One that a broadcast serves
// moves nothing when it joins: it has no position.
func (p *Planner) fetches(r *pb.Coordinates) bool {
	return p.opts.Job.Output.BroadcastAt != "tp" || r.GetTp() == 0
}

func (p *Planner) sourceNames() []string { return namesOf(p.sources) }

func namesOf(sources []jobspec.Source) []string {
	names := make([]string, len(sources))
	for i, s := range sources {
		names[i] = s.Name
	}
	return names
}

// root is the chain value before the first step.
func (p *Planner) root() [32]byte { return batch.Root(p.id.spec, p.id.manifest) }
