package plan_test

import (
	"testing"

	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// TestPrepareSaysNothing: what is wrong with a step shows when the step may be
// planned, not before, however often it is prepared.
func TestPrepareSaysNothing(t *testing.T) {
	core := plan.New(plan.Config{
		SequenceLength: 4, Rows: 1, Packing: true, Ahead: 1, Window: 1,
		Sources:  []plan.Source{{Name: "soon barren", Blocks: 2}},
		Schedule: mix.NewSchedule([]mix.Stage{{Weights: []float64{1}}}),
	})
	published, failed := int64(0), false
	var take func(effects []plan.Effect)
	take = func(effects []plan.Effect) {
		for _, e := range effects {
			switch e := e.(type) {
			case plan.Want:
				lengths := []int32{}
				if e.Seq == 0 {
					lengths = []int32{4, 4, 4}
				}
				take(core.Apply(plan.BlockRead{Source: e.Source, Seq: e.Seq, Lengths: lengths}))
			case plan.Publish:
				published++
			case plan.Fail:
				failed = true
			}
		}
	}
	take(core.Start())
	for step := range int64(4) {
		for range 10 {
			take(core.Prepare())
		}
		if failed || published != step+1 {
			t.Fatalf("prepared: %d steps are published, not %d; failed: %v", published, step+1, failed)
		}
		if take(core.Apply(plan.Acked{Step: step + 1})); failed {
			return
		}
	}
	t.Fatal("a source without samples is not found")
}
