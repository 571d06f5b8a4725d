package token_test

import (
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// TestReplayWithoutChange: a record that lacks a change which is due is wrong, unless the log parted, and has changes of other branches.
func TestReplayWithoutChange(t *testing.T) {
	cfg := plan.Config{
		Sources: []plan.Source{{Name: "web", Blocks: 9}}, Schedule: mix.NewSchedule([]mix.Stage{{Weights: []float64{1}}}),
		SequenceLength: 8, Rows: 4, Packing: true, Ahead: 2, Window: 8,
	}
	core := plan.New(cfg)
	var records [][]byte
	for effects := core.Start(); len(effects) > 0; effects = effects[1:] {
		switch e := effects[0].(type) {
		case plan.Want:
			effects = append(effects, core.Apply(plan.BlockRead{Source: e.Source, Seq: e.Seq, Lengths: []int32{3, 3, 3, 3}})...)
		case plan.Publish:
			before, _ := core.State(e.Step.Step)
			records = append(records, token.NewRecord(e.Step, before).Encode())
		}
	}
	first, _ := core.State(0)
	first = first.Clone()
	first.Await(plan.Change{Step: 1, Kind: plan.Skip, Steps: 1, Text: []byte(`{"step":1,"skip":1}`)})
	each := func(each func(int64, []byte) error) error {
		for step, record := range records {
			if err := each(int64(step), record); err != nil {
				return err
			}
		}
		return nil
	}
	if _, err := token.Replay(&cfg, first, false, each); err == nil || !strings.Contains(err.Error(), "step 1 of the log: the log has 1 changes that are due at the step, and its record 0") {
		t.Errorf("in a log of one branch: %v", err)
	}
	if at, err := token.Replay(&cfg, first, true, each); err != nil || at.Step != int64(len(records)) || len(at.Pending) > 0 {
		t.Errorf("in a log that parted: step %d of %d, %d changes to come, %v", at.Step, len(records), len(at.Pending), err)
	}
}
