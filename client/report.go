package client

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// Report is what a rank measured at the last step that Next returned. The job's
// mix.feedback says how losses move its mix.
type Report struct {
	Losses      map[string]float64 // by source, the mean over its tokens in the rank's part; sources may be left out
	Tokens      map[string]uint64  // that each is the mean of; of those not named, a mean counts as one token
	StepSeconds float64            // duration of the step without waiting for data; 0 = not reported
}

// reportDeadline is how long a report may hold up a training loop.
const reportDeadline = 5 * time.Second

// Report sends the service what was measured. It returns when the service has it,
// or after some seconds with a *LostError: the report may then be
// made again, or left out. Of several ranks that see the same loss, one reports.
func (c *Client) Report(ctx context.Context, r Report) error {
	if err := c.closing.enter(); err != nil {
		return err
	}
	defer c.closing.leave()
	req, err := r.wire()
	if err != nil {
		return err
	}
	if c.next == c.session.began {
		return fault.Userf("there is no step to report on: Next returned none so far")
	}
	req.Identity, req.Step, req.Rank = c.session.now().reply.Identity, uint64(c.next-1), c.opts.Rank.wire()
	ctx, cancel := context.WithTimeout(ctx, reportDeadline)
	defer cancel()
	err = c.askPlanner(ctx, func(ctx context.Context, planner pb.PlannerClient, epoch uint64, refused uint32) (uint64, error) {
		req.Epoch, req.StaleRefused = epoch, refused
		reply, err := planner.Report(ctx, req)
		return reply.GetEpoch(), err
	})
	if err != nil {
		return fault.As(fault.ClassOf(err), fmt.Errorf("%s reporting step %d to %s: %w", c.opts.Rank, req.Step, c.address, err))
	}
	return nil
}

// wire is the request, sources in the order of their names.
func (r Report) wire() (*pb.ReportRequest, error) {
	if len(r.Losses) == 0 && r.StepSeconds == 0 {
		return nil, fault.Userf("the report is empty: give losses by source, or the seconds of the step")
	}
	if !(r.StepSeconds >= 0) || math.IsInf(r.StepSeconds, 0) {
		return nil, fault.Userf("the step took %v seconds: give a number above 0, or 0 to leave it out", r.StepSeconds)
	}
	req := &pb.ReportRequest{StepSeconds: r.StepSeconds}
	for _, name := range slices.Sorted(maps.Keys(r.Losses)) {
		loss := r.Losses[name]
		if math.IsNaN(loss) || math.IsInf(loss, 0) {
			return nil, fault.Userf("the loss of source %q is %v: leave the source out", name, loss)
		}
		req.Sources, req.Losses = append(req.Sources, name), append(req.Losses, loss)
		req.Tokens = append(req.Tokens, r.Tokens[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Tokens)) {
		if _, ok := r.Losses[name]; !ok {
			return nil, fault.Userf("there are tokens of source %q, but no loss: give both", name)
		}
	}
	return req, nil
}

// Change changes the job served at address and returns the first step that the
// change applies to; it is durable then. change is one line of a change file, such
// as {"weights":{"web":0.7,"code":0.3}}; without a step it applies as soon as it
// can. Of several addresses, as Open takes them, the one that serves gets it. It is sent once: after a *LostError it may have been
// made, and the status of the job lists the changes that were. A source that is
// added is indexed first, which takes a while: give ctx a deadline that allows for it.
func Change(ctx context.Context, address string, change []byte, security Security) (step int64, err error) {
	return ChangeFrom(ctx, address, change, nil, security)
}

// ChangeFrom changes the topology of a job at the step of a resume token, though later
// steps are planned or were delivered: those are void, and ranks of the new mesh join with
// the token. It is how a job goes on when ranks are lost. A second call does nothing.
func ChangeFrom(ctx context.Context, address string, change, token []byte, security Security) (step int64, err error) {
	planners, err := serving(ctx, address, security)
	if err != nil {
		return 0, err
	}
	defer planners.close()
	reply, err := pb.NewPlannerClient(planners.now().conn).Change(ctx, &pb.ChangeRequest{Change: change, Token: token})
	if err != nil {
		err = rpc.FromStatus(err)
		if fault.ClassOf(err) == fault.Lost {
			err = fmt.Errorf("%w; it may have been made: see the changes in the job's status", err)
		}
		return 0, fault.As(fault.ClassOf(err), fmt.Errorf("changing the job at %s: %w", planners.now().address, err))
	}
	return int64(reply.Step), nil
}
