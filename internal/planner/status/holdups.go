package status

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/millrace-data/millrace/internal/planner/control"
)

// What holds steps up is looked at several times a second, as a profiler looks at a program: one look
// may come in between, a share of many does not.

const (
	// HoldupEvery is the time between two looks: fifty in what is said of the last 10 s.
	HoldupEvery = 200 * time.Millisecond
	// holdupWindow is what a share is about.
	holdupWindow = 10 * time.Second
	// forgotten is the share below which what held steps up is not named any more.
	forgotten = 0.001
)

// Holdups is how long steps were held up, by what: the zero value, not at all. It is not safe for concurrent use.
type Holdups struct {
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

// Look takes what holds the next step up now for the reason of the time since the last look; while the loop itself
// was at work for most of it, or a step may be planned, that is the planner's. now is on clock, spent what
// the loop has worked in all.
func (h *Holdups) Look(x control.Holdup, now, spent time.Duration) {
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

func (h *Holdups) add(of blame, d time.Duration, text string) {
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

// List is all of it, what holds steps up most of late first.
func (h *Holdups) List() (all []Holdup) {
	recent := time.Duration(0)
	for _, b := range h.by {
		recent += b.recent
	}
	for of, b := range h.by {
		x := Holdup{Cause: string(of.cause), Name: of.name, Seconds: b.total.Seconds(), Share: float64(b.recent) / float64(max(recent, 1))}
		if x.Share >= forgotten {
			x.Text = b.text
		}
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b Holdup) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Due says that it is time to look again. now is on the clock of Look.
func (h *Holdups) Due(now time.Duration) bool { return now-h.looked >= HoldupEvery }
