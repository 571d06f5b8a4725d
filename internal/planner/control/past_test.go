package control

import (
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// TestPast: of a position's past only what stands in a file has to be part of it, as it
// is or overruled by what was made live.
func TestPast(t *testing.T) {
	weights := plan.Change{Step: 3, Kind: plan.SetShares, Shares: []uint64{1 << 31, 1 << 31}, Text: []byte("weights")}
	pause := plan.Change{Step: 9, Kind: plan.Pause, Source: 1, Text: []byte("pause")}
	schedule := plan.Change{Step: 12, Kind: plan.UseSchedule, Text: []byte("schedule")}
	weighted := plan.Settings{Shares: weights.Shares}
	for name, c := range map[string]struct {
		journal []plan.Change
		step    int64
		has     plan.Settings
		refused bool
	}{
		"all of it":                  {[]plan.Change{weights, pause}, 20, plan.Settings{Shares: weights.Shares, Out: []int32{1}}, false},
		"live ones of another time":  {[]plan.Change{pause, weights}, 20, weighted, false},
		"overruled":                  {[]plan.Change{weights, schedule}, 20, plan.Settings{}, false},
		"not there":                  {[]plan.Change{weights}, 20, plan.Settings{}, true},
		"another in its place":       {[]plan.Change{weights, pause}, 20, plan.Settings{Shares: []uint64{1 << 32, 0}, Out: []int32{1}}, true},
		"to come":                    {[]plan.Change{weights}, 3, plan.Settings{}, false},
		"overruled after the token":  {[]plan.Change{weights, schedule}, 10, weighted, false},
		"not there, and overruled":   {[]plan.Change{weights, schedule}, 10, plan.Settings{}, true},
		"live ones that are missing": {[]plan.Change{pause, schedule}, 20, weighted, false},
	} {
		var core Core
		for _, ch := range c.journal {
			e := entry{plan: ch}
			if ch.Kind == plan.SetShares {
				e.Origin = "c.jsonl:1: "
			}
			core.journal.entries = append(core.journal.entries, e)
		}
		err := core.agree(plan.State{Step: c.step, Settings: c.has})
		if (err != nil) != c.refused || c.refused && (!strings.HasPrefix(err.Error(), "c.jsonl:1: the change weights is for step 3") || fault.ClassOf(err) != fault.User) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
