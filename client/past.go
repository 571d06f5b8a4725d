package client

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// StateAt returns what State was after some whole steps of the job served at address (of several, as Open takes
// them, the one that serves is asked), for a checkpoint of which nothing but the step is known: Options.Token resumes from the token, and
// ChangeFrom changes the topology there. The service takes the step out of its log, however long ago it was; without a
// log it holds those only that not all ranks are done with. It asks no rank and moves nothing.
// A step that is not held is a *UserError that says which are. Concurrent calls are fine.
func StateAt(ctx context.Context, address string, step int64, security Security) (token []byte, digest [32]byte, err error) {
	if step < 0 {
		return nil, digest, fault.Userf("there is no state of step %d: steps count up from 0", step)
	}
	planners, err := serving(ctx, address, security)
	if err != nil {
		return nil, digest, err
	}
	defer planners.close()
	reply, err := pb.NewPlannerClient(planners.now().conn).State(ctx, &pb.StateRequest{Step: uint64(step), Past: true})
	if err != nil {
		err = rpc.FromStatus(err)
		return nil, digest, fault.As(fault.ClassOf(err), fmt.Errorf("asking the service at %s for the state of step %d: %w", planners.now().address, step, err))
	}
	copy(digest[:], reply.Digest)
	return reply.Token, digest, nil
}
