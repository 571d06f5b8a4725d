package rpc

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestVain: a role looks for a planner less often while one is there that has no epoch, and as often as before when that one is
// gone, or has an epoch.
func TestVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		role := &Role{Log: slog.New(slog.DiscardHandler), Epochs: &Epochs{}}
		role.Epochs.Hear(2)
		talk := &talk{role: role, planners: make([]candidate, 2), pause: Backoff{Name: "loader l0"}}
		rounds := func(epoch uint64) (last time.Duration) {
			for range 30 {
				begin := time.Now()
				for range talk.planners {
					if err := talk.wait(t.Context(), talk.check(epoch)); err != nil {
						t.Fatal(err)
					}
				}
				last = time.Since(begin)
			}
			return last
		}
		for _, c := range []struct {
			epoch uint64
			pause time.Duration
		}{{1, lookEvery}, {0, vainEvery}, {1, lookEvery}} {
			if d := rounds(c.epoch); d < c.pause*8/10 || d > c.pause*12/10 {
				t.Errorf("planners of epoch %d are tried after %v, want about %v", c.epoch, d, c.pause)
			}
		}
	})
}
