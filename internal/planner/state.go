package planner

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// State implements the Planner service.
func (p *Planner) State(ctx context.Context, req *pb.StateRequest) (*pb.StateReply, error) {
	if len(req.Identity) > 0 && !bytes.Equal(req.Identity, p.id.spec[:]) {
		return nil, rpc.ToStatus(fault.Userf("the state of spec %x was asked for, this service runs %x", head(req.Identity), p.id.spec[:6]))
	}
	ctx, cancel := rpc.Early(ctx)
	defer cancel()
	if err := p.reach(ctx, int64(req.Step)); err != nil {
		return nil, rpc.ToStatus(err)
	}
	var reply *pb.StateReply
	var refused error
	err := p.ask(ctx, func() bool {
		if p.failed != nil {
			refused = rpc.Final(p.failed)
			return true
		}
		if p.core == nil {
			return false
		}
		step := int64(req.Step)
		if step < p.core.Acked() {
			refused = fault.Userf("the state of step %d is gone: all trainers said they were done with %d steps; ask before the next batch", step, p.core.Acked())
			return true
		}
		state, planned := p.core.State(step)
		digest, digested := p.core.Digest(step)
		if !planned || !digested {
			return false
		}
		reply = &pb.StateReply{Token: p.token(state, digest), Digest: digest[:]}
		return true
	})
	if err != nil {
		err = p.waitedFor(ctx, err)
	}
	return reply, rpc.ToStatus(cmp.Or(err, refused))
}

// reachTime is how long a service waits for the position of a rank that asks for a state.
// A rank has only ever done steps that were planned: a service that has not planned them
// was started again since, and comes to them when other ranks that know where they are
// have joined, or when the core has planned what follows. Both take less.
const reachTime = 5 * time.Second

// reach waits until a step is planned, in a job that a rank has joined. Without that the
// one who asks may be who the job waits for.
func (p *Planner) reach(ctx context.Context, step int64) error {
	early, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	planned := int64(0)
	err := p.ask(early, func() bool {
		if p.positioned && p.core != nil {
			planned = p.core.Planned()
		}
		return p.failed != nil || p.positioned && p.core != nil && step <= p.core.Planned()
	})
	if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fault.Userf("this service does not know the state of step %d: it was started again, or moved back, and has planned %d steps since; "+
		"nothing is wrong with the job: restart all ranks from the same checkpoint", step, planned)
}
