package planner

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/status"
)

// A strategy, a cost or a policy of a user's own runs in the loop, and may not come
// back. The status says so, and the planner ends all the same.
const (
	slowStatus = 2 * time.Second // that the loop has to answer in
	stopLoop   = 3 * time.Second // that it has to come to its end in
)

// busy says what the loop is at. It may be asked from anywhere.
type busy struct {
	since atomic.Int64  // ns since 1970; 0 while it waits
	step  atomic.Int64  // the next to be planned
	spent time.Duration // so far; the loop's
}

// run runs the loop until it ends, or is to end and does not.
func (p *Planner) run(ctx context.Context) error {
	defer close(p.done)
	defer p.costs.Keep(ctx)()
	defer p.scaling.Begin(ctx, p.cfg.Resumes)()
	go p.pulse.Beat(func() time.Duration { return time.Since(clock) }, p.done)
	ended := make(chan error, 1)
	go func() { ended <- p.loop(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	for {
		select {
		case err := <-ended:
			return err
		case <-time.After(stopLoop):
			if p.busyFor() >= stopLoop {
				return fault.Lostf("the planner does not end: it waits for %s", p.stuck())
			}
		}
	}
}

// begin notes that the loop is at something, until end is called.
func (b *busy) begin() (end func()) {
	begun := time.Now()
	b.since.Store(begun.UnixNano())
	return func() {
		b.since.Store(0)
		b.spent += time.Since(begun)
	}
}

// busyFor is how long the loop has been at the same thing.
func (p *Planner) busyFor() time.Duration {
	if since := p.busy.since.Load(); since != 0 {
		return time.Since(time.Unix(0, since))
	}
	return 0
}

// stuck says what the loop does not come back from.
func (p *Planner) stuck() string {
	by := "the strategy"
	if s := p.opts.Job.Strategy; len(s) > 0 && s[0].Use != "" {
		by = fmt.Sprintf("strategy %q", s[0].Use)
	}
	return fmt.Sprintf("step %d to be planned by %s, for %v so far", p.busy.step.Load(), by, p.busyFor().Round(time.Second))
}

// currentStatus is the status, or what is known of it while the loop is busy.
func (p *Planner) currentStatus(ctx context.Context) (s status.Service, err error) {
	soon, cancel := context.WithTimeout(ctx, slowStatus)
	defer cancel()
	s, err = p.look(soon)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return status.Service{
			Job: p.opts.Job.Name, State: "running", UptimeSec: time.Since(p.started).Seconds(), Planned: p.busy.step.Load(), End: -1, WaitingFor: p.stuck(),
		}, nil
	}
	return s, err
}
