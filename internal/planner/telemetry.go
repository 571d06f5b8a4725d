package planner

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/millrace-data/millrace/internal/planner/status"
	"github.com/millrace-data/millrace/internal/telemetry"
)

// What the planner shows of itself, beside its status: the same numbers, by name.

// counted is what only telemetry wants to know. It may be read from anywhere.
type counted struct {
	loaders, constructors atomic.Uint64 // sessions that began
	joins                 atomic.Uint64 // of ranks, that were granted
	again                 status.Rejoins
}

// show shows the planner on the board until the function that it returns is called.
func (p *Planner) show() (remove func()) {
	return p.opts.Telemetry.Add(telemetry.Part{Role: "planner", Metrics: p.observe, Ready: p.unready})
}

// waits shows a planner that waits for its turn, and looks after its certificate meanwhile.
func waits(ctx context.Context, opts *Options) (end func()) {
	remove := opts.Telemetry.Add(telemetry.Part{Role: "planner", Ready: func() string { return "the log of the job, which another planner may have open" }})
	ctx, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { opts.Security.WatchCertificate(ctx.Done()) })
	return func() {
		stop()
		watch.Wait()
		remove()
	}
}

// unready says why the planner does not serve its peers; "" when it does. That loaders, constructors or ranks are not there
// is no reason: they come by the address that a Service takes away from a planner which is not ready. What failed a job it
// does not repeat: errors quote records and name files, and anybody may ask whether a planner is ready.
func (p *Planner) unready() string {
	ctx, cancel := context.WithTimeout(context.Background(), slowStatus)
	defer cancel()
	s, err := p.look(ctx)
	switch {
	case err != nil && p.busyFor() > 0:
		return "" // it plans, and that takes long
	case err != nil:
		return err.Error()
	case s.State == "failed":
		return "someone to mend what failed the job (" + s.Class + "): see `millrace status`"
	}
	return ""
}

// observe gives the values of the planner's metrics. While the loop is busy with one step for long, there are none.
func (p *Planner) observe(put telemetry.Observe) {
	ctx, cancel := context.WithTimeout(context.Background(), slowStatus)
	defer cancel()
	put = put.OfJob(p.opts.Job.Name)
	put(telemetry.MemberSessions, float64(p.counted.loaders.Load()), "loader")
	put(telemetry.MemberSessions, float64(p.counted.constructors.Load()), "constructor")
	put(telemetry.RankJoins, float64(p.counted.joins.Load()))
	s, err := p.look(ctx)
	if err != nil {
		return
	}
	put(telemetry.PlanAhead, float64(p.opts.Prefetch))
	s.Observe(put)
}
