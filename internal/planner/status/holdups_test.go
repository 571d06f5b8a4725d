package status

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/planner/control"
)

// TestHoldups: time goes to what held the next step up, the loop's own work to the planner, and shares are of late.
func TestHoldups(t *testing.T) {
	var h Holdups
	now, spent := time.Second, time.Duration(0)
	for range 100 { // 20 s
		now += HoldupEvery
		h.Look(control.Holdup{Cause: control.CauseSource, Name: "web", Text: "block 7"}, 0, now, spent, 0)
	}
	for range 50 { // 10 s, of which the loop works 80 %
		now += HoldupEvery
		spent += HoldupEvery * 8 / 10
		h.Look(control.Holdup{Cause: control.CauseTrainers}, 0, now, spent, 0)
	}
	for range 50 { // 10 s, of which the loop works 20 %: that is ahead of time
		now += HoldupEvery
		spent += HoldupEvery * 2 / 10
		h.Look(control.Holdup{Cause: control.CauseTrainers}, 0, now, spent, 0)
	}
	want := []struct {
		cause   string
		seconds float64
		share   float64
	}{{"trainers", 12, 0.69}, {"planner", 8, 0.19}, {"source", 19.8, 0.12}}
	all := h.List()
	for i, w := range want {
		x := all[i]
		if x.Cause != w.cause || math.Abs(x.Seconds-w.seconds) > 0.01 || math.Abs(x.Share-w.share) > 0.02 {
			t.Errorf("%d: %+v, want %+v", i, x, w)
		}
	}
	if len(all) != 3 || all[2].Name != "web" || all[2].Text != "block 7" {
		t.Errorf("%+v", all)
	}
}

// TestStopped: a look that comes late is no reason to blame what it sees: the planner was stopped, for however long; and a
// constructor that says nothing now and then is to blame for what is ready.
func TestStopped(t *testing.T) {
	trainers := control.Holdup{Cause: control.CauseTrainers, Text: "trainers: rank dp=0 is at step 4", Quiet: "C0"}
	for name, c := range map[string]struct {
		every  []time.Duration // from a look to the next, again and again
		quiet  []bool          // at each, a constructor is
		cause  string
		says   string
		counts float64 // seconds of that in the end
	}{
		"nothing":           {[]time.Duration{HoldupEvery}, []bool{false}, "delivery", "take long to reach the ranks", 0},
		"a busy machine":    {[]time.Duration{2 * HoldupEvery}, []bool{false}, "delivery", "take long to reach the ranks", 0},
		"a throttled one":   {[]time.Duration{1000 * time.Millisecond}, []bool{true}, "planner", "the planner was stopped or had no CPU, 60 % of the time", 12},
		"a planner stopped": {[]time.Duration{HoldupEvery, 20*time.Second - HoldupEvery}, []bool{false, false}, "planner", "the planner was stopped or had no CPU", 19.4},
		"a constructor": {[]time.Duration{HoldupEvery, HoldupEvery, HoldupEvery, HoldupEvery, HoldupEvery}, []bool{false, false, false, true, true},
			"constructor", "constructor C0 says nothing, 4", 8},
	} {
		var h Holdups
		now := time.Second
		var pulse Pulse
		pulse.beat(now)
		h.Look(trainers, 0, now, 0, 0)
		for k := 0; now < 21*time.Second; k++ {
			now += c.every[k%len(c.every)]
			x := trainers
			if !c.quiet[k%len(c.every)] {
				x.Quiet = ""
			}
			h.Look(x, 0, now, 0, pulse.Lost(now))
			pulse.beat(now) // a moment later
		}
		s := Service{State: "running", Joined: true, Trainers: Trainers{Ranks: 2, Share: 0.3, Most: 0.4, Least: 0.3}}
		h.Judge(&s, &Rejoins{}, now)
		seconds := 0.0
		for _, x := range s.Holdups {
			if x.Name != "" {
				seconds += x.Seconds
			}
		}
		if s.Stall.Cause != c.cause || !strings.Contains(s.Stall.Line, c.says) || math.Abs(seconds-c.counts) > 0.01 {
			t.Errorf("%s: %+v, %v s of %+v", name, s.Stall, seconds, s.Holdups)
		}
	}
}
