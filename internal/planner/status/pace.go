package status

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/millrace-data/millrace/internal/planner/control"
)

// A batch may be ready and not reach its rank: the link is too slow, or the client stands still. The rank's trainer says how
// long it waited when it is done with that, so until then other things tell: the rank asked for a step that is there, or it
// joins again. That a step takes far longer than those before says nothing of the way to a rank that waits for none: trainers
// evaluate, and save checkpoints.

const (
	// askedLong is how long a rank may wait for a step that is ready, as constructors say each second.
	askedLong = 3 * time.Second
	// standsLong is how long no step may be finished, and standsTimes how many times the usual.
	standsLong  = 10 * time.Second
	standsTimes = 5
	// joinedLately is how long a rank that joined again is on its way.
	joinedLately = 10 * time.Second
)

// pace is how steps go on, as the planner sees it. Times are on clock.
type pace struct {
	acked int64
	since time.Duration // steps stand at acked
	usual time.Duration // that a step took of late; 0: not known
	slow  control.Acked // the rank that holds the job back
	asked time.Duration // it waits for a step that is ready since then; 0: it does not
	text  string        // what is waited for, while the service has done all that it may
}

// look takes what is seen now; lost is for how long the planner itself was stopped.
func (p *pace) look(x control.Holdup, acked int64, now, lost time.Duration) {
	p.since += lost
	switch steps := acked - p.acked; {
	case p.since == 0 || steps < 0: // the job was moved back
		p.acked, p.since, p.usual = acked, now, 0
	case steps > 0:
		if took := (now - p.since) / time.Duration(steps); p.usual == 0 {
			p.usual = took
		} else {
			p.usual += (took - p.usual) / 4
		}
		p.acked, p.since = acked, now
	}
	p.text = ""
	if x.Cause == control.CauseTrainers && x.Ranks {
		p.text = x.Text
	}
	switch waits := p.text != "" && x.Slow.Waits; {
	case !waits:
		p.asked = 0
	case p.asked == 0 || x.Slow != p.slow:
		p.asked = now
	default:
		p.asked += lost
	}
	p.slow = x.Slow
}

// way is what is ready and does not reach a rank, which waits for it; nothing, as far as is known.
func (p *pace) way(now time.Duration) Stall {
	if d := now - p.asked; p.asked > 0 && d >= askedLong {
		return Stall{"delivery", p.slow.Slowest, fmt.Sprintf("the way to %s: step %d is ready, and the rank has waited for it for %.0f s", p.slow.Slowest, p.slow.Step, d.Seconds())}
	}
	return Stall{}
}

// rest is which trainers take far longer than usual for a step while they wait for none; nothing, as far as is known.
func (p *pace) rest(now time.Duration) Stall {
	d := now - p.since
	if p.text == "" || p.asked > 0 || p.usual == 0 || d < max(standsLong, standsTimes*p.usual) {
		return Stall{}
	}
	line := fmt.Sprintf("no step was finished for %.0f s, where one took %.1f s: %s", d.Seconds(), p.usual.Seconds(), strings.TrimPrefix(p.text, "trainers: "))
	if p.slow.Slowest != "" {
		line += ", and waits for none, as during an evaluation or a checkpoint, or if its trainer hangs"
	}
	return Stall{"trainers", p.slow.Slowest, line}
}

// Rejoins are the ranks that joined again. The zero value is none; it is safe for concurrent use.
type Rejoins struct {
	mu   sync.Mutex // guards the rest
	seen map[string]bool
	last string        // that joined again
	at   time.Duration // on clock
}

// Joined notes that a rank was let in at a time on clock.
func (r *Rejoins) Joined(rank string, at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[rank] {
		r.last, r.at = rank, at
		return
	}
	if r.seen == nil {
		r.seen = map[string]bool{}
	}
	r.seen[rank] = true
}

// way is the way to the rank that joined again last, if that is not long ago.
func (r *Rejoins) way(now time.Duration) Stall {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == "" || now-r.at >= joinedLately {
		return Stall{}
	}
	return Stall{"delivery", r.last, fmt.Sprintf("the way to %s, which joined again %.0f s ago, or its trainer, if that was started again", r.last, max(now-r.at, 0).Seconds())}
}

// Judge puts what holds steps up into the description of a service, and says who waits for whom. now is on clock.
func (h *Holdups) Judge(s *Service, again *Rejoins, now time.Duration) {
	s.Holdups = h.List()
	if s.facts.way = h.pace.way(now); s.facts.way.Line == "" {
		s.facts.way = again.way(now)
	}
	s.facts.rest = h.pace.rest(now)
	s.Stall = Judge(s)
}
