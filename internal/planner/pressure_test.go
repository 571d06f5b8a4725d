package planner

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// TestPressure: a planner whose trainers leave less time than a draw takes is under
// pressure from the next step on, until they leave more.
func TestPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pressure
		for n, step := range []struct {
			draws  []time.Duration
			waited time.Duration
			want   bool
		}{
			{nil, 0, false}, // nothing was drawn ahead
			{[]time.Duration{60 * time.Millisecond}, 300 * time.Millisecond, false},
			{[]time.Duration{60 * time.Millisecond}, 0, true},
			{[]time.Duration{30 * time.Millisecond, 40 * time.Millisecond}, 69 * time.Millisecond, true},
			{[]time.Duration{30 * time.Millisecond, 40 * time.Millisecond}, 70 * time.Millisecond, false},
			{[]time.Duration{leastDraw - 1}, 0, false}, // a look that found nothing to draw
		} {
			for _, took := range step.draws {
				p.waited += time.Second // for blocks, between two draws of a step
				p.draw(func() { time.Sleep(took) })
			}
			p.waited += step.waited
			p.planned()
			if want := step.want && runtime.GOMAXPROCS(0) > 1; p.pressed != want {
				t.Errorf("step %d: under pressure: %t; want %t", n, p.pressed, want)
			}
		}
	})
}
