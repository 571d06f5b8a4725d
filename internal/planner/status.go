package planner

import (
	"context"
	"fmt"
	"strings"
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
	x := p.core.Snapshot()
	s := status.Of(x,
		func(of control.Session) *pb.LoaderUsage { return p.loaders[of].usage.Load() },
		func(of control.Session) *pb.ConstructorUsage { return p.constructors[of].usage.Load() })
	s.UptimeSec, s.Epoch, s.StaleRefused = time.Since(p.started).Seconds(), p.epoch, p.staleRefused()
	s.AppendsRefused, s.Scaling = p.log.Refused(), p.scaling.Now()
	s.Holdups = p.holdups.List()
	s.Stall = status.Judge(&s)
	if x.Err == nil {
		s.WaitingFor += p.silent(x, time.Since(clock))
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

// silence is how long a role may say nothing before the status names it: they report
// their memory every second.
const silence = 5 * time.Second

// silent names the roles that are connected and have said nothing for long: stopped,
// starved, or behind a network that is gone. The connection is given up later.
func (p *Planner) silent(x control.Snapshot, now time.Duration) string {
	var b strings.Builder
	note := func(role string, m control.Member, quiet time.Duration) {
		if quiet > silence {
			fmt.Fprintf(&b, "; %s %s at %s has said nothing for %.0f s", role, m.Name, m.Address, quiet.Seconds())
		}
	}
	if len(x.Loaders) == 0 && x.State != "starting" {
		b.WriteString("; no loader is connected")
	}
	for _, l := range x.Loaders {
		note("loader", l, p.loaders[l.Session].quiet(now))
	}
	for _, c := range x.Constructors {
		note("constructor", c, p.constructors[c.Session].quiet(now))
	}
	return b.String()
}
