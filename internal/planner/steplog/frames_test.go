package steplog

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/memlog"
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// TestFrames: key frames come as often as replaying asks for, and as rarely as their bytes do.
func TestFrames(t *testing.T) {
	for _, c := range []struct {
		what          string
		record, frame int
		each          time.Duration
		want          int // steps from one key frame to the next
	}{
		{"before anything is measured", 1000, 100, 0, mostRecords},
		{"fast replay", 1000, 100, time.Microsecond, mostRecords},
		{"a millisecond a record", 1000, 100, time.Millisecond, 100},
		{"slow replay", 1000, 100, 20 * time.Millisecond, leastRecords},
		{"a process that was stopped", 1000, 100, time.Hour, leastRecords},
		{"slow replay, large key frames", 1000, 5000, 20 * time.Millisecond, 80},
		{"key frames that no number of records makes up for", 10, 1 << 20, time.Hour, mostRecords},
		{"large records", 100 << 10, 100, time.Microsecond, 41},
	} {
		f := frames{each: c.each}
		f.wrote(c.record, c.frame)
		got := 1
		for ; !f.due(); got++ {
			f.wrote(c.record, 0)
		}
		if got != c.want {
			t.Errorf("%s: a key frame after %d steps, want %d", c.what, got, c.want)
		}
	}
}

// TestTrial: the first records after a key frame are replayed and read back, which says how long a
// record takes; one that leads elsewhere than its planner goes on from is never written.
func TestTrial(t *testing.T) {
	cfg := plan.Config{
		Sources: []plan.Source{{Name: "web", Blocks: 9}}, Schedule: mix.NewSchedule([]mix.Stage{{Weights: []float64{1}}}),
		SequenceLength: 8, Rows: 4, Packing: true, Ahead: trial + 2, Window: 8,
	}
	var store memlog.Store
	log, err := store.Open(checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, core := &frames{}, plan.New(cfg)
	for effects := core.Start(); len(effects) > 0; effects = effects[1:] {
		switch e := effects[0].(type) {
		case plan.Want:
			effects = append(effects, core.Apply(plan.BlockRead{Source: e.Source, Seq: e.Seq, Lengths: []int32{3, 3, 3, 3}})...)
		case plan.Publish:
			op := control.AppendStep{Step: e.Step}
			op.Before, _ = core.State(e.Step.Step)
			record := token.NewRecord(op.Step, op.Before).Encode()
			if err := f.try(&cfg, op, record); err != nil {
				t.Fatal(err)
			}
			if e.Step.Step == 3 {
				wrong := *op.Step
				wrong.After = wrong.After.Clone()
				wrong.After.Cursors[0].Index++
				if err := (&frames{}).try(&cfg, control.AppendStep{Step: &wrong, Before: op.Before}, record); err == nil || !strings.Contains(err.Error(), "step 3") {
					t.Errorf("a record that leads elsewhere: %v", err)
				}
			}
			f.wrote(len(record), 0)
			if err := errors.Join(log.Append(e.Step.Step, record, nil), f.tryReading(log)); err != nil {
				t.Fatal(err)
			}
			if measured := f.each > 0; measured != (e.Step.Step+1 >= trial) {
				t.Fatalf("after step %d it is known how long a record takes: %v", e.Step.Step, measured)
			}
		}
	}
	if f.tried != trial+1 {
		t.Errorf("%d records were tried", f.tried)
	}
	resumed := &frames{}
	if err := errors.Join(log.Append(trial+2, nil, []byte("frame")), log.Append(trial+3, []byte("record"), nil), resumed.resume(log)); err != nil {
		t.Fatal(err)
	}
	if resumed.records != 2 || resumed.bytes != len("record") || resumed.frame != len("frame") {
		t.Errorf("a planner that starts counts %+v", resumed)
	}
}
