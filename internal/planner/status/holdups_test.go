package status

import (
	"math"
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
		h.Look(control.Holdup{Cause: control.CauseSource, Name: "web", Text: "block 7"}, now, spent)
	}
	for range 50 { // 10 s, of which the loop works 80 %
		now += HoldupEvery
		spent += HoldupEvery * 8 / 10
		h.Look(control.Holdup{Cause: control.CauseTrainers}, now, spent)
	}
	for range 50 { // 10 s, of which the loop works 20 %: that is ahead of time
		now += HoldupEvery
		spent += HoldupEvery * 2 / 10
		h.Look(control.Holdup{Cause: control.CauseTrainers}, now, spent)
	}
	h.Look(control.Holdup{Cause: control.CauseTrainers}, now+time.Hour, spent) // the process was stopped
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
