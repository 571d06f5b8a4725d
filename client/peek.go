package client

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// Newest asks Peek for the last step that is assembled.
const Newest = int64(-1)

// Peek returns what a rank of the job served at address gets of a step, without
// side effects: nothing joins, nothing is acknowledged, and the job goes on as before. Steps are there from the one that the slowest rank is at to the last that
// is planned; any other is a *UserError that names them. Of opts it takes
// Rank, Job, Identity, Stall, Deadline and Security.
func Peek(ctx context.Context, address string, step int64, opts Options) (*Batch, error) {
	opts.withDefaults()
	c := &Client{opts: opts, address: address}
	var b *Batch
	err := c.within(ctx, "a look at "+lookAt(step), func(ctx context.Context) (err error) {
		b, err = c.peek(ctx, step)
		return err
	})
	if err != nil {
		return nil, fault.As(fault.ClassOf(err), fmt.Errorf("looking at the batch of %s at %s: %w", opts.Rank, address, err))
	}
	return b, nil
}

func lookAt(step int64) string {
	if step == Newest {
		return "the newest step"
	}
	return fmt.Sprintf("step %d", step)
}

// peek has a client that joins nothing, and knows whom it waits for.
func (c *Client) peek(ctx context.Context, step int64) (b *Batch, err error) {
	opts := &c.opts
	if err := opts.Rank.check(); err != nil {
		return nil, err
	}
	if step < Newest {
		return nil, fault.Userf("step %d: write a step from 0 on, or %d for the newest", step, Newest)
	}
	if c.planners, err = dialPlanners(c.address, opts.Security); err != nil {
		return nil, err
	}
	defer c.planners.close()
	var at *pb.JoinReply
	err = c.ask(ctx, func(ctx context.Context, planner pb.PlannerClient) (err error) {
		at, err = planner.Locate(ctx, &pb.LocateRequest{Job: opts.Job, Identity: opts.Identity, Rank: opts.Rank.wire()})
		return err
	})
	if err != nil {
		return nil, err
	}
	if !at.Fetches {
		return nil, fault.Userf("%s gets its batches from rank tp=0 of the same place by a broadcast: look at that one", opts.Rank)
	}
	data, err := rpc.Dial(at.Constructor, c.security())
	if err != nil {
		return nil, err
	}
	defer data.Close()
	stream, err := pb.NewConstructorClient(data).Peek(c.hearing(ctx, at.Constructor), &pb.PeekRequest{Identity: at.Identity, Rank: opts.Rank.wire(), Step: uint64(max(step, 0)), Newest: step == Newest, Hears: true})
	if err != nil {
		return nil, rpc.FromStatus(err)
	}
	return receive(stream, at.Sources, &memory{})
}
