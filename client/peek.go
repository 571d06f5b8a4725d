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
// Rank, Job, Identity, Deadline and Security.
func Peek(ctx context.Context, address string, step int64, opts Options) (*Batch, error) {
	opts.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, opts.Deadline)
	defer cancel()
	b, err := peek(ctx, address, step, opts)
	if err != nil {
		return nil, fault.As(fault.ClassOf(err), fmt.Errorf("looking at the batch of %s at %s: %w", opts.Rank, address, err))
	}
	return b, nil
}

func peek(ctx context.Context, address string, step int64, opts Options) (*Batch, error) {
	if step < Newest {
		return nil, fault.Userf("step %d: write a step from 0 on, or %d for the newest", step, Newest)
	}
	planner, err := rpc.Dial(address, opts.Security)
	if err != nil {
		return nil, err
	}
	defer planner.Close()
	at, err := pb.NewPlannerClient(planner).Locate(ctx, &pb.LocateRequest{Job: opts.Job, Identity: opts.Identity, Rank: opts.Rank.wire()})
	if err != nil {
		return nil, rpc.FromStatus(err)
	}
	if !at.Fetches {
		return nil, fault.Userf("%s gets its batches from rank tp=0 of the same place by a broadcast: look at that one", opts.Rank)
	}
	data, err := rpc.Dial(at.Constructor, opts.Security.Of(address))
	if err != nil {
		return nil, err
	}
	defer data.Close()
	stream, err := pb.NewConstructorClient(data).Peek(ctx, &pb.PeekRequest{Identity: at.Identity, Rank: opts.Rank.wire(), Step: uint64(max(step, 0)), Newest: step == Newest})
	if err != nil {
		return nil, rpc.FromStatus(err)
	}
	return receive(stream, at.Sources, &memory{})
}
