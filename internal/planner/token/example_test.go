package token_test

import (
	"fmt"
	"math"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/memlog"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/planner/mesh"
)

// A trainer saves a position, and resumes from it in a service that has seen nothing yet.
func Example() {
	job := token.Job{Name: "demo", Identity: [32]byte{1}, Manifest: [32]byte{2}, Sources: []token.Source{{Name: "web"}, {Name: "code"}}}
	state := plan.Start(2)
	state.Step = 1000
	state.Cursors[0] = plan.Cursor{Seq: 7, Index: 42, Deficit: -120, Tokens: 8_000_000}

	saved := token.Encode(job, mesh.Single(), state, [32]byte{3})
	at, err := token.Decode(job, saved)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(at.State.Step, at.State.Cursors[0], at.State.Same(state))

	job.Manifest[0]++ // its files are others now
	_, err = token.Decode(job, saved)
	fmt.Println(err)
	// Output:
	// 1000 {7 42 -120 8000000 0 0} true
	// the data of job "demo" changed since the resume token was made (manifest 020000000000 then, 030000000000 now): put the files back as they were, or start again without a token
}

// A planner logs every step, and another one goes on from the last key frame and the
// records after it.
func ExampleReplay() {
	job := token.Job{Sources: []token.Source{{Name: "web"}, {Name: "code"}}}
	cfg := plan.Config{
		Sources: []plan.Source{{Name: "web", Blocks: 9}, {Name: "code", Blocks: 9}}, Schedule: mix.NewSchedule([]mix.Stage{{Weights: []float64{3, 1}}}),
		SequenceLength: 8, Rows: 4, Packing: true, Ahead: 10, Window: 8,
	}
	var store memlog.Store
	log, err := store.Open(checkpoint.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	core := plan.New(cfg)
	effects := core.Start()
	for len(effects) > 0 {
		switch e := effects[0].(type) {
		case plan.Want: // every sample has 3 tokens
			effects = append(effects, core.Apply(plan.BlockRead{Source: e.Source, Seq: e.Seq, Lengths: []int32{3, 3, 3, 3}})...)
		case plan.Publish:
			before, _ := core.State(e.Step.Step)
			var frame []byte
			if e.Step.Step%4 == 0 {
				frame = token.EncodeFrame(job, before, [32]byte{})
			}
			if err := log.Append(e.Step.Step, token.NewRecord(e.Step, before).Encode(), frame); err != nil {
				fmt.Println(err)
			}
		}
		effects = effects[1:]
	}

	step, frame, _, _ := log.Frame(math.MaxInt64)
	at, err := token.Decode(job, frame)
	if err != nil {
		fmt.Println(err)
		return
	}
	restored, err := token.Replay(&cfg, at.State, false, func(each func(int64, []byte) error) error { return log.Records(step, math.MaxInt64, each) })
	live, _ := core.State(core.Planned())
	fmt.Println("from step", step, "to", restored.Step, restored.Same(live), err)
	// Output:
	// from step 8 to 10 true <nil>
}
