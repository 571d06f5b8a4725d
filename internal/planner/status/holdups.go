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
	lost   time.Duration // by the process, as of then
	by     map[blame]*held
	pace   pace
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

// stopped is the name of what holds steps up while the planner's process does not run.
const stopped = "stopped"

// Look takes what holds the next step up now for the reason of the time since the last look; while the loop itself
// was at work for most of it, or a step may be planned, that is the planner's. What it sees is no reason for the time in
// which the process did not run, nor is the work that this came amid. acked is how many steps all ranks are done with, now
// on clock, spent what the loop has worked in all, lost the time in all in which the process did not run.
func (h *Holdups) Look(x control.Holdup, acked int64, now, spent, lost time.Duration) {
	dt, work, halt := now-h.looked, spent-h.spent, max(lost-h.lost, 0)
	first := h.looked == 0
	h.looked, h.spent, h.lost = now, spent, max(lost, h.lost)
	if first {
		h.pace.look(x, acked, now, 0)
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
	halt = min(halt, dt)
	work = min(work, dt-halt)
	h.pace.look(x, acked, now, halt)
	if x.Cause == control.CauseTrainers && work < (dt-halt)/2 {
		work = 0
	}
	of, text := blame{x.Cause, x.Name}, x.Text
	if x.Quiet != "" && halt == 0 && (x.Cause == control.CauseTrainers || x.Cause == control.CauseConstructor) {
		of, text = blame{control.CauseConstructor, x.Quiet}, "it says nothing"
	}
	h.add(of, dt-work-halt, text)
	h.add(blame{control.CausePlanner, ""}, work, "")
	h.add(blame{control.CausePlanner, stopped}, halt, "it was stopped or had no CPU")
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
	b.total += d
	b.recent += time.Duration(float64(holdupWindow) * -math.Expm1(-d.Seconds()/holdupWindow.Seconds())) // d, less what of it is long ago
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
