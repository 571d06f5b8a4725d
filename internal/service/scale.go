package service

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/millrace-data/millrace/internal/fleet"
	"github.com/millrace-data/millrace/internal/planner/status"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// loaderName is that of a loader of a service on one machine.
func loaderName(i int) string { return fmt.Sprintf("loader-%d", i) }

// page numbers the pages of what loader i shows of itself, if it is a process: those that come later are behind all others.
func (o *Options) page(i int) int {
	if first := o.Loaders + o.Shadows; i >= first {
		return 1 + i + o.Constructors
	}
	return 1 + i
}

// fleet runs the loaders of a service, those that it begins with and those that come later.
func (o *Options) fleet(start func(ctx context.Context, i int) error) *fleet.Local {
	first := o.Loaders + o.Shadows
	f := fleet.NewLocal(max(first, o.Scale.Most+o.Shadows), func(_ fleet.Role, i int) string { return loaderName(i) },
		func(ctx context.Context, _ fleet.Role, i int) error { return start(ctx, i) })
	_ = f.Scale(context.Background(), fleet.Loader, first) // these are no more than it may have
	return f
}

// followEvery is how often a service looks at what its planner, another process, wants: a tenth of the time that it takes
// to decide.
const followEvery = time.Second

// follow has a fleet be as the planner's status says until ctx ends. A planner that does not answer is asked again.
func (o *Options) follow(ctx context.Context, planner string, f fleet.Fleet) error {
	conn, err := rpc.Dial(planner, o.Security.Of(planner))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := pb.NewPlannerClient(conn)
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		reply, err := client.Status(ctx, &pb.StatusRequest{})
		if err != nil {
			continue
		}
		if err := obey(ctx, reply.Json, f); err != nil {
			o.Log.Warn("loaders are not scaled", "err", err)
		}
	}
}

// obey has a fleet be as a status says, if that was decided: a planner that was started again knows nothing yet of the
// loaders that came for the one before it, and they stay.
func obey(ctx context.Context, text []byte, f fleet.Fleet) error {
	var s status.Service
	if err := json.Unmarshal(text, &s); err != nil || s.Scaling == nil || !s.Scaling.Decided {
		return err
	}
	f.Draining(fleet.Loader, s.Scaling.Drained)
	return f.Scale(ctx, fleet.Loader, s.Scaling.Loaders)
}
