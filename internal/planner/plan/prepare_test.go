package plan_test

import (
	"testing"

	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/planner/strategy"
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

// TestPreparePlaces: a step whose samples are known is placed ahead, so that its strategy is not called
// when trainers wait for it; and once more if a change comes first.
func TestPreparePlaces(t *testing.T) {
	calls := 0
	core := plan.New(plan.Config{
		SequenceLength: 4, Rows: 2, Packing: true, Ahead: 1, Window: 8,
		Sources:  []plan.Source{{Name: "all", Blocks: 2}},
		Schedule: mix.NewSchedule([]mix.Stage{{Weights: []float64{1}}}),
		Strategy: func(s *strategy.Step) error {
			calls++
			return strategy.InOrder(s)
		},
	})
	published := int64(0)
	var take func(effects []plan.Effect)
	take = func(effects []plan.Effect) {
		for _, e := range effects {
			switch e := e.(type) {
			case plan.Want:
				take(core.Apply(plan.BlockRead{Source: e.Source, Seq: e.Seq, Lengths: []int32{4, 4, 4, 4, 4, 4, 4, 4}}))
			case plan.Publish:
				published++
			case plan.Fail:
				t.Fatal(e.Err)
			}
		}
	}
	take(core.Start())
	for step := range int64(4) {
		calls = 0
		take(core.Prepare())
		take(core.Prepare())
		if calls != 1 || published != step+1 {
			t.Fatalf("step %d: preparing the next called the strategy %d times, with %d steps published", step, calls, published)
		}
		again := 0
		if step%2 == 1 {
			take(core.Apply(plan.Changed{Change: plan.Change{Kind: plan.Resize, Batch: plan.Shape{Rows: int(step), SequenceLength: 4}}}))
			again = 1
		}
		if take(core.Apply(plan.Acked{Step: step + 1})); calls != 1+again || published != step+2 {
			t.Fatalf("step %d: the strategy was called %d times for the next, of %d steps published", step, calls, published)
		}
	}
}
