package steplog

import (
	"bytes"
	"errors"
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/memlog"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// firstStep is a step as a planner makes it, and the position before it.
func firstStep(t *testing.T) (*plan.Step, plan.State) {
	core := plan.New(plan.Config{
		Sources: []plan.Source{{Name: "web", Blocks: 9}}, Schedule: mix.NewSchedule([]mix.Stage{{Weights: []float64{1}}}),
		SequenceLength: 8, Rows: 4, Packing: true, Ahead: 1, Window: 8,
	})
	for effects := core.Start(); len(effects) > 0; effects = effects[1:] {
		switch e := effects[0].(type) {
		case plan.Want:
			effects = append(effects, core.Apply(plan.BlockRead{Source: e.Source, Seq: e.Seq, Lengths: []int32{3, 3, 3, 3}})...)
		case plan.Publish:
			before, _ := core.State(e.Step.Step)
			return e.Step, before
		}
	}
	t.Fatal("no step was planned")
	return nil, plan.State{}
}

// TestPlacedAgain: a planner that takes over gives the rows of a step to the ranks that they were given to before, as far
// as the log says which, or the job ends: a rank that has its part already would miss rows, or have them twice.
func TestPlacedAgain(t *testing.T) {
	step, before := firstStep(t)
	other := *step
	placed := *step.Placed
	placed.Microbatch = append([]int32{1}, step.Placed.Microbatch[1:]...)
	other.Placed = &placed
	now := token.NewRecord(step, before)
	for what, c := range map[string]struct {
		logged token.Placed
		want   error
	}{
		"as before":                       {now.Placed, nil},
		"a row in another microbatch":     {token.PlacementOf(&other), checkpoint.ErrDiverged},
		"on another mesh":                 {now.Placed ^ 1<<40, nil},
		"by a build that does not say it": {0, nil},
	} {
		was := *now
		was.Placed = c.logged
		var store memlog.Store
		log, err := store.Open(checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Append(step.Step, was.Encode(), nil); err != nil {
			t.Fatal(err)
		}
		again := *now
		w := &Writer{log: log, opts: Options{Dir: "log"}}
		if err := w.placedAgain(step.Step, &again); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		} else if err == nil && !bytes.Equal(again.Encode(), was.Encode()) {
			t.Errorf("%s: the record is another one than the log has", what)
		}
	}
}

// TestReplannedElsewhere: a job that went back to another mesh makes the same records, but for the ranks.
func TestReplannedElsewhere(t *testing.T) {
	step, before := firstStep(t)
	record := token.NewRecord(step, before)
	here := record.Encode()
	record.Placed ^= 1<<40 | 1
	if same, _, err := compare(here, record.Encode()); !same || err != nil {
		t.Errorf("with other ranks: the same %v, %v", same, err)
	}
	record.Plan[0]++
	if same, parted, err := compare(here, record.Encode()); same || parted || err != nil {
		t.Errorf("with other rows: the same %v, parted %v, %v", same, parted, err)
	}
}
