package plan_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// The core asks for blocks, and plans a step when it knows enough samples: two
// rows, each with two samples named by source, block, place and length. The
// shell carries out what it says.
func Example() {
	core := plan.New(plan.Config{
		Sources:        []plan.Source{{Name: "web", Blocks: 2}, {Name: "code", Blocks: 1}},
		Schedule:       mix.NewSchedule([]mix.Stage{{Weights: []float64{0.5, 0.5}}}),
		SequenceLength: 10, Rows: 2, Packing: true,
		Ahead: 1, Window: 4,
	})
	show(core.Start())
	show(core.Apply(plan.BlockRead{Source: 0, Seq: 0, Lengths: []int32{4, 6, 3, 7, 5}}))
	show(core.Apply(plan.BlockRead{Source: 1, Seq: 0, Lengths: []int32{5, 5, 2, 8}}))
	// Output:
	// plan.Want {Source:0 Seq:0}
	// plan.Want {Source:1 Seq:0}
	// plan of step 0 [2 2] [{1 0 2 2} {1 0 3 8} {0 0 0 4} {0 0 1 6}]
	// plan.Want {Source:0 Seq:1}
	// plan.Want {Source:1 Seq:1}
	// plan.Want {Source:1 Seq:2}
}

func show(effects []plan.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case plan.Publish:
			fmt.Println("plan of step", e.Step.Step, e.Step.Rows, e.Step.Samples())
		default:
			fmt.Printf("%T %+v\n", e, e)
		}
	}
}
