package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// Remesh has the job go on from a step with another mesh, this client as a rank of it. It is
// for ranks that are lost, or come: those that are left agree on the step that all of them
// can go on from, the next one that their models have not learned from, and on their new
// places; then each calls Remesh with the same mesh and step, and with its own place. The
// first call changes the topology, the others find it changed. Global batches stay what they
// were: only who gets which part of them changes. What any rank was given from that step on is
// void and comes again.
//
// Sizes of axes that mesh has as 0 stay as they are. The service must still have the step: no
// earlier one than the first that not all ranks of the old mesh are done with. Ranks that come
// new open a client with the mesh, their place and the token of State at that step.
//
// It returns when the rank has joined. After a *LostError, or if ctx ended, it may be called
// again; until it succeeds Next fails. Batches that Next returned before stay valid.
func (c *Client) Remesh(ctx context.Context, mesh Mesh, rank Rank, step int64) error {
	if err := c.closing.enter(); err != nil {
		return err
	}
	defer c.closing.leave()
	change, err := mesh.change()
	if err == nil {
		err = cmp.Or(mesh.check(), rank.check())
	}
	if err == nil && step < 0 {
		err = fault.Userf("the job cannot go on from step %d: steps count up from 0", step)
	}
	if err != nil {
		return err
	}
	c.halt()
	c.failed = fault.Lostf("%s is between two meshes: call Remesh again", c.opts.Rank)
	defer c.logWait(ctx, "to join another mesh")()
	was := c.opts.Rank
	err = c.within(ctx, "its place in another mesh", func(ctx context.Context) error {
		for pauses := (rpc.Backoff{Name: was.String()}); ; {
			err := c.remesh(ctx, change, mesh, rank, step)
			if err == nil || !again(ctx, err) {
				return err
			}
			_ = pauses.Wait(ctx) // if ctx ends, so does the next attempt
		}
	})
	if err != nil {
		return fault.As(fault.ClassOf(err), fmt.Errorf("%s going on from step %d as %s: %w", was, step, rank, err))
	}
	c.failed = nil
	c.next = step
	c.position.Store(step)
	c.carried.Store(0)
	c.begin()
	return nil
}

// change is the change of topology to a mesh.
func (m Mesh) change() ([]byte, error) {
	sizes := map[string]int{}
	for _, axis := range []struct {
		name string
		size int
	}{{"dp", m.DP}, {"cp", m.CP}, {"pp", m.PP}, {"tp", m.TP}} {
		if axis.size != 0 {
			sizes[axis.name] = axis.size
		}
	}
	if len(sizes) == 0 {
		return nil, fault.Userf("the mesh has no size: give that of one axis at least, such as Mesh{DP: 3}")
	}
	return json.Marshal(map[string]any{"topology": sizes, "reason": "ranks were lost or came"})
}

// remesh makes the change, unless another rank has, and joins.
func (c *Client) remesh(ctx context.Context, change []byte, mesh Mesh, rank Rank, step int64) error {
	token := c.session.tokenOf(step)
	if token == nil {
		reply, err := c.state(ctx, step)
		if err != nil {
			return fault.As(fault.ClassOf(err), fmt.Errorf("asking for its state: %w", err))
		}
		token = reply.Token
	}
	identity := c.session.now().reply.Identity
	err := c.askPlanner(ctx, func(ctx context.Context, planner pb.PlannerClient, epoch uint64, refused uint32) (uint64, error) {
		reply, err := planner.Change(ctx, &pb.ChangeRequest{Change: change, Identity: identity, Token: token, Epoch: epoch, StaleRefused: refused})
		return reply.GetEpoch(), err
	})
	if err != nil {
		return err
	}
	c.opts.Rank, c.opts.Mesh = rank, mesh
	reply, err := c.askToJoin(ctx, &pb.JoinRequest{Identity: identity, Token: token, Protocol: rpc.Oldest, Newest: rpc.Protocol})
	if err != nil {
		return err
	}
	return c.session.start(reply, c.security())
}
