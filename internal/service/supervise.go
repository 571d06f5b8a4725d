package service

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

// A role's process that dies is started again: what it was doing, others do meanwhile, or wait
// for it. One that dies again and again ends the service, as does one that says that the spec
// or the data is at fault.

const (
	// mostDeaths within deathWindow are survived: each may lose a role some seconds of work, and
	// what kills it so often is not going away.
	mostDeaths  = 5
	deathWindow = time.Minute
	// The pause before a process is started again doubles from firstPause to lastPause.
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// deaths are the last ones of a role, in time.
type deaths []time.Time

// add notes one more, and returns how many there were of late.
func (d *deaths) add(now time.Time) int {
	*d = append(slices.DeleteFunc(*d, func(t time.Time) bool { return now.Sub(t) > deathWindow }), now)
	return len(*d)
}

// pause is how long to wait after n deaths.
func pause(n int) time.Duration { return min(firstPause<<min(n-1, 10), lastPause) }

// supervise runs the process until ctx ends, and starts it again when it dies, within limits.
// serving is called with the address from its first line, in its first life.
func (p *process) supervise(ctx context.Context, serving func(string)) error {
	for first := true; ; first = false {
		e := p.run(ctx, serving)
		serving = nil
		if e.served {
			p.args, p.served = append(p.args, p.served...), nil
		}
		planner := p.args[0] == "planner"
		switch {
		case ctx.Err() != nil && (!planner || e.state == nil || e.state.ExitCode() <= 0):
			return nil
		case ctx.Err() != nil || e.said(): // a planner whose job had failed before it was stopped says so
			return p.why(&e)
		case planner && e.state.ExitCode() == 4 && (first || e.served):
			return p.why(&e) // it gave up what it can do nothing without, such as the log's disk; one that did not get to its log at its start may do so later
		case !p.lasting:
			return fault.As(e.class(), fmt.Errorf("%w; where the job was is lost with it, and another planner would begin at the first step: "+
				"give a --log-dir, and the planner is started again and goes on", p.why(&e)))
		}
		if err := p.rest(ctx, &e); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// rest waits before a process is started again that died; its error is that it died too often.
func (p *process) rest(ctx context.Context, e *ending) error {
	n := p.deaths.add(time.Now())
	p.died++
	if n > mostDeaths {
		return fault.As(e.class(), fmt.Errorf("%w; it was the %dth time within %v, and it is not started again", p.why(e), n, deathWindow))
	}
	p.opts.Log.Warn("a role's process died and is started again", "role", p.name, "reason", p.why(e), "deaths", n, "of", mostDeaths, "within", deathWindow, "in_all", p.died, "stderr", e.tail.lines(lastLines))
	select {
	case <-ctx.Done():
	case <-time.After(pause(n)):
	}
	return nil
}

// lastLines of a process that died go to the log.
const lastLines = 5
