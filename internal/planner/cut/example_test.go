package cut_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/planner/cut"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/planner/mesh"
)

// A step of two rows is cut for two constructors, which serve a DP rank each.
func Example() {
	tree, err := mesh.New(mesh.Sizes{DP: 2, CP: 1, PP: 1, TP: 1, VPP: 1, EP: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	core := plan.New(plan.Config{
		Sources: []plan.Source{{Name: "web", Blocks: 1}}, Schedule: mix.NewSchedule([]mix.Stage{{Weights: []float64{1}}}),
		SequenceLength: 10, Rows: 2, Packing: true, Ahead: 1, Window: 4, Mesh: tree,
	})
	core.Start()
	for _, effect := range core.Apply(plan.BlockRead{Lengths: []int32{4, 6, 10, 10, 10}}) {
		published, ok := effect.(plan.Publish)
		if !ok {
			continue
		}
		step, err := cut.New(published.Step)
		if err != nil {
			fmt.Println(err)
			return
		}
		for dp := range uint32(2) {
			part := step.Part(1, []uint32{dp}, func(source int32, seq int64) *pb.PlanBlock {
				return &pb.PlanBlock{Source: uint32(source), Seq: uint64(seq)}
			})
			fmt.Println("dp", dp, "rows", part.Rows, "lengths", part.SampleLength)
		}
	}
	// Output:
	// dp 0 rows [0] lengths [10]
	// dp 1 rows [1] lengths [10]
}
