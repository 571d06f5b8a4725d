package planner

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/status"
)

// What holds steps up is looked at several times a second, as a profiler looks at a program: one look
// may come in between, a share of many does not.

const (
	// holdupEvery is the time between two looks: fifty in what is said of the last 10 s.
	holdupEvery = 200 * time.Millisecond
	// holdupWindow is what a share is about.
	holdupWindow = 10 * time.Second
	// forgotten is the share below which what held steps up is not named any more.
	forgotten = 0.001
)

// holdups is how long steps were held up, by what. It is the loop's.
type holdups struct {
	looked time.Duration // on clock; 0: not yet
	spent  time.Duration // by the loop, as of then
	by     map[blame]*held
}

type blame struct {
	cause control.Cause
	name  string
}

// held is how long something held steps up.
type held struct {
	total, recent time.Duration // recent: the last holdupWindow; older times weigh less
	text          string
}

// look takes what holds the next step up now for the reason of the time since the last look; while the loop itself
// was at work for most of it, or a step may be planned, that is the planner's. now is on clock, spent what
// the loop has worked in all.
func (h *holdups) look(x control.Holdup, now, spent time.Duration) {
	dt, work := now-h.looked, spent-h.spent
	first := h.looked == 0
	h.looked, h.spent = now, spent
	if first || dt > holdupWindow { // the planner was stopped, or its clock was put forward
		return
	}
	if h.by == nil {
		h.by = map[blame]*held{}
	}
	decay := math.Exp(-dt.Seconds() / holdupWindow.Seconds())
	for _, b := range h.by {
		b.recent = time.Duration(float64(b.recent) * decay)
	}
	if x.Cause == control.CauseNothing {
		return
	}
	work = min(work, dt)
	if x.Cause == control.CauseTrainers && work < dt/2 {
		work = 0
	}
	h.add(blame{x.Cause, x.Name}, dt-work, x.Text)
	h.add(blame{control.CausePlanner, ""}, work, "")
}

func (h *holdups) add(of blame, d time.Duration, text string) {
	if d == 0 {
		return
	}
	b := h.by[of]
	if b == nil {
		b = &held{}
		h.by[of] = b
	}
	b.total, b.recent = b.total+d, b.recent+d
	b.text = text
}

// list is all of it, what holds steps up most of late first.
func (h *holdups) list() (all []status.Holdup) {
	recent := time.Duration(0)
	for _, b := range h.by {
		recent += b.recent
	}
	for of, b := range h.by {
		x := status.Holdup{Cause: string(of.cause), Name: of.name, Seconds: b.total.Seconds(), Share: float64(b.recent) / float64(max(recent, 1))}
		if x.Share >= forgotten {
			x.Text = b.text
		}
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b status.Holdup) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// lookAtHoldup looks, when it is time. now is on clock.
func (p *Planner) lookAtHoldup(now time.Duration) {
	if now-p.holdups.looked >= holdupEvery {
		h := p.core.Holdup()
		if h.Cause == control.CauseSource {
			h.Text += p.culprit(now)
		}
		p.holdups.look(h, now, p.busy.spent)
	}
}
