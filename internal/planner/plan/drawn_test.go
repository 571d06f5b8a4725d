package plan_test

import (
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// TestDrawnFromOtherData: samples that a position has drawn already are looked up in
// their blocks before they are used, wherever the position comes from.
func TestDrawnFromOtherData(t *testing.T) {
	carried := func(r plan.Ref) func(*plan.State) {
		return func(s *plan.State) { s.Carry = append(s.Carry, r) }
	}
	for name, test := range map[string]struct {
		position func(*plan.State)
		want     string
	}{
		"as it was":      {carried(plan.Ref{Seq: 1, Index: 1, Length: 3}), ""},
		"another length": {carried(plan.Ref{Seq: 1, Index: 1, Length: 4}), `source "web", block 1: sample 1 had 4 tokens when it was drawn, and has 3 now`},
		"not there":      {carried(plan.Ref{Seq: 1, Index: 2, Length: 3}), `source "web", block 1: sample 2 had 3 tokens when it was drawn, and is not there now`},
	} {
		t.Run(name, func(t *testing.T) {
			core := plan.New(plan.Config{
				SequenceLength: 4, Rows: 1, Packing: true, Ahead: 1, Window: 1,
				Sources:  []plan.Source{{Name: "web", Blocks: 9}},
				Schedule: mix.NewSchedule([]mix.Stage{{Weights: []float64{1}}}),
			})
			state := plan.Start(1)
			state.Step, state.Cursors[0].Seq = 5, 2
			test.position(&state)
			asked, published := map[int64]bool{}, 0
			var failed error
			var take func(effects []plan.Effect)
			take = func(effects []plan.Effect) {
				for _, e := range effects {
					switch e := e.(type) {
					case plan.Want:
						asked[e.Seq] = true
						take(core.Prepare()) // which says nothing
						take(core.Apply(plan.BlockRead{Source: e.Source, Seq: e.Seq, Lengths: []int32{2, 3}}))
					case plan.Publish:
						published++
					case plan.Fail:
						failed = e.Err
					}
				}
			}
			take(core.Apply(plan.Rewind{State: state}))
			switch {
			case !asked[1]:
				t.Errorf("the block of the sample that was drawn is not asked for: %v", asked)
			case test.want == "" && (failed != nil || published != 1):
				t.Errorf("%d steps are planned, %v", published, failed)
			case test.want != "" && (fault.ClassOf(failed) != fault.User || !strings.Contains(failed.Error(), test.want) || published != 0):
				t.Errorf("%d steps are planned, %v; want %q", published, failed, test.want)
			}
		})
	}
}
