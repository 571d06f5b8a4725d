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

// look asks the loop for the status.
func (p *Planner) look(ctx context.Context) (s status.Service, err error) {
	seen := make(chan status.Service, 1)
	if err := p.put(ctx, looking{seen}); err != nil {
		return s, err
	}
	select {
	case s = <-seen:
		return s, nil
	case <-p.done:
		return s, errClosing
	case <-ctx.Done():
		return s, ctx.Err()
	}
}

// status is called by the loop.
func (p *Planner) status() status.Service {
	x := p.core.Snapshot()
	s := status.Of(x,
		func(of control.Session) *pb.LoaderUsage { return p.loaders[of].usage.Load() },
		func(of control.Session) *pb.ConstructorUsage { return p.constructors[of].usage.Load() })
	s.UptimeSec, s.Epoch, s.StaleRefused = time.Since(p.started).Seconds(), p.epoch, p.staleRefused()
	s.AppendsRefused, s.Scaling = p.log.Refused(), p.scaling.now()
	s.Holdups = p.holdups.list()
	s.Stall = status.Judge(&s)
	if x.Err == nil {
		s.WaitingFor += p.silent(x, time.Since(clock))
	}
	return s
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
