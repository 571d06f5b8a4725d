package status

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/planner/control"
)

// TestWay: data does not wait on trainers, whatever they say of waits that are over, while a rank has asked for a step that is
// ready, or after a rank joined again. It does while trainers that wait for nothing take far longer than they did.
func TestWay(t *testing.T) {
	const rank = "rank dp=1 cp=0 pp=0 tp=0"
	at := func(waits bool, step int64) control.Holdup {
		return control.Holdup{Cause: control.CauseTrainers, Ranks: true, Text: "trainers: " + rank + " is at a step", Slow: control.Acked{Bucket: 1, Step: step, Slowest: rank, Waits: waits}}
	}
	for name, c := range map[string]struct {
		then   control.Holdup
		stands time.Duration // after ten steps of a second each
		again  time.Duration // before the end the rank joined again; 0: it did not
		lost   time.Duration // the planner was stopped before the last look
		cause  string
		want   string
	}{
		"it goes on":               {at(false, 10), time.Second, 0, 0, "trainers", "none: "},
		"it asks, and will have":   {at(true, 10), 2 * time.Second, 0, 0, "trainers", "none: "},
		"it asks, and has not":     {at(true, 10), 4 * time.Second, 0, 0, "delivery", "the way to " + rank + ": step 10 is ready, and the rank has waited for it for 5 s"},
		"the planner was stopped":  {at(true, 10), time.Second, 0, time.Minute, "planner", "the planner was stopped"},
		"the rank came back then":  {at(false, 10), time.Second, time.Second, time.Minute, "planner", "the planner was stopped"},
		"a source holds it up":     {control.Holdup{Cause: control.CauseSource, Name: "web"}, 4 * time.Second, 0, 0, "trainers", "none: "},
		"a step takes long":        {at(false, 10), 9 * time.Second, 0, 0, "trainers", "none: "},
		"it saves a checkpoint":    {at(false, 10), 12 * time.Second, 0, 0, "trainers", "; no step was finished for 13 s, where one took 0.9 s: " + rank + " is at a step, and waits for none"},
		"it asks, and for long":    {at(true, 10), 12 * time.Second, 0, 0, "delivery", "the way to " + rank + ": step 10 is ready, and the rank has waited for it for 13 s"},
		"a rank does not ask":      {control.Holdup{Cause: control.CauseTrainers, Ranks: true, Text: "trainers: 1 of 2 ranks have not asked"}, 12 * time.Second, 0, 0, "trainers", "where one took 0.9 s: 1 of 2 ranks have not asked"},
		"it joined again":          {at(false, 10), time.Second, 3 * time.Second, 0, "delivery", "the way to " + rank + ", which joined again 3 s ago"},
		"it joined again for long": {at(false, 10), 12 * time.Second, 3 * time.Second, 0, "delivery", "the way to " + rank + ", which joined again 3 s ago"},
		"it did so some time ago":  {at(false, 10), time.Second, joinedLately, 0, "trainers", "none: "},
	} {
		var h Holdups
		now := time.Second
		look := func(x control.Holdup, acked int64, d time.Duration) {
			for end := now + d; now < end; {
				now += HoldupEvery
				h.Look(x, acked, now, 0, 0)
			}
		}
		h.Look(at(false, 0), 0, now, 0, 0)
		for step := range int64(10) {
			look(at(true, step+1), step+1, time.Second)
		}
		look(c.then, 10, c.stands-HoldupEvery)
		if c.lost > 0 {
			now += c.lost
			h.Look(c.then, 10, now, c.lost, c.lost) // amid a step's planning
		}
		var again Rejoins
		again.Joined(rank, 1)
		if c.again > 0 {
			again.Joined(rank, now-c.again)
		}
		s := Service{State: "running", Joined: true, Trainers: Trainers{Ranks: 2}}
		h.Judge(&s, &again, now)
		if s.Stall.Cause != c.cause || !strings.Contains(s.Stall.Line, c.want) {
			t.Errorf("%s: %+v, want %s: %q", name, s.Stall, c.cause, c.want)
		}
	}
}

// TestMovedBack: a job that is moved to an earlier step has no pace until it goes on.
func TestMovedBack(t *testing.T) {
	var p pace
	x := control.Holdup{Cause: control.CauseTrainers, Ranks: true, Text: "trainers: a rank"}
	p.look(x, 8, time.Second, 0)
	p.look(x, 9, 2*time.Second, 0)
	if x := p.rest(time.Hour); x.Line == "" {
		t.Error("a job that stands for an hour goes on")
	}
	if p.look(x, 3, 3*time.Second, 0); p.rest(time.Hour).Line != "" {
		t.Errorf("a job that was moved back has a pace: %+v", p)
	}
}
