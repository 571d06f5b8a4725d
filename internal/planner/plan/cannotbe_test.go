package plan_test

import (
	"math"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// TestLastOfAllSteps: a change for the last step that there can be waits behind all others.
func TestLastOfAllSteps(t *testing.T) {
	var s plan.State
	for _, step := range []int64{3, math.MaxInt64, 2, math.MaxInt64, 3} {
		s.Await(plan.Change{Step: step, Kind: plan.UseSchedule})
	}
	for i, want := range []int64{2, 3, 3, math.MaxInt64, math.MaxInt64} {
		if got := s.Pending[i].Step; got != want {
			t.Errorf("change %d is for step %d, want %d", i, got, want)
		}
	}
}

// TestBytesThatCannotBe: sizes of blocks that add up to nothing decide how far ahead is read, and are nobody's end.
func TestBytesThatCannotBe(t *testing.T) {
	core := plan.New(plan.Config{
		Sources: []plan.Source{{Name: "a", Blocks: 9}, {Name: "b", Blocks: 9}}, Schedule: mix.NewSchedule([]mix.Stage{{Weights: []float64{1, 1}}}),
		Rows: 2, SequenceLength: 4, MicrobatchSize: 1, Ahead: 2, Window: 1,
	})
	core.Apply(plan.Readers{Of: []plan.Reader{{Blocks: 1, Memory: 1}, {Blocks: 1, Memory: 1}}})
	core.Start()
	for source, bytes := range []int64{100, -100} {
		core.Apply(plan.BlockRead{Source: int32(source), Lengths: []int32{4, 4, 4, 4}, Bytes: bytes})
	}
	if core.Planned() != 2 {
		t.Errorf("%d steps are planned", core.Planned())
	}
}

// TestAddBeforeWeights: a source cannot join before weights that are set already without it, and the
// refusal says what to do.
func TestAddBeforeWeights(t *testing.T) {
	core := plan.New(plan.Config{
		Sources: []plan.Source{{Name: "a", Blocks: 9}, {Name: "b", Blocks: 9}}, Schedule: mix.NewSchedule([]mix.Stage{{Weights: []float64{1, 1}}}),
		Rows: 2, SequenceLength: 4, MicrobatchSize: 1, Ahead: 2, Window: 1,
	})
	core.Apply(plan.Changed{Change: plan.Change{Step: 32, Kind: plan.SetShares, Shares: mix.FromWeights([]float64{1, 3})}})
	add := plan.Change{Step: 24, Kind: plan.AddSource, Add: plan.Added{Source: plan.Source{Name: "c", Blocks: 9}}}
	want := `it does not go with the change "set weights" of step 32: 2 weights for 3 sources; cancel that change, add the source, and set the weights again with one for it`
	if err := core.Check(add); err == nil || fault.ClassOf(err) != fault.User || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	add.Step = 33
	if err := core.Check(add); err != nil {
		t.Errorf("after them: %v", err)
	}
}
