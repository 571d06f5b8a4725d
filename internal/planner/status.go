package planner

import (
	"context"
	"time"

	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/status"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// see asks the loop for what it answers an input with.
func see[T any](ctx context.Context, p *Planner, ask func(seen chan<- T) input) (x T, err error) {
	seen := make(chan T, 1)
	if err = p.put(ctx, ask(seen)); err != nil {
		return x, err
	}
	select {
	case x = <-seen:
		return x, nil
	case <-p.done:
		return x, errClosing
	case <-ctx.Done():
		return x, ctx.Err()
	}
}

// look asks the loop for the status.
func (p *Planner) look(ctx context.Context) (status.Service, error) {
	return see(ctx, p, func(seen chan<- status.Service) input { return looking{seen} })
}

// status is called by the loop.
func (p *Planner) status() status.Service {
	x, now := p.core.Snapshot(), time.Since(clock)
	s := status.Of(x,
		func(of control.Session) *pb.LoaderUsage { return p.loaders[of].usage.Load() },
		func(of control.Session) *pb.ConstructorUsage { return p.constructors[of].usage.Load() }, p.quiet(now))
	s.UptimeSec, s.Epoch, s.StaleRefused = time.Since(p.started).Seconds(), p.epoch, p.staleRefused()
	s.AppendsRefused, s.Scaling = p.log.Refused(), p.scaling.Now()
	s.Want(p.opts.Loaders+p.opts.Shadows, p.opts.Constructors)
	p.holdups.Judge(&s, &p.counted.again, now)
	if x.Err == nil {
		if x.Holdup.Cause == control.CauseSource || x.Holdup.Cause == control.CauseLog {
			s.WaitingFor += p.culprit(now)
		}
		s.WaitingFor += status.Silent(x, p.quiet(now))
	}
	return s
}

// View implements scaling.Planner.
func (p *Planner) View(ctx context.Context) (control.Snapshot, error) {
	return see(ctx, p, func(seen chan<- control.Snapshot) input { return viewing{seen} })
}

// Redeal implements scaling.Planner.
func (p *Planner) Redeal(ctx context.Context, table [][]int) {
	_ = p.put(ctx, occurred{control.Redeal{Table: table}}) // it fails when there is no planner any more
}
