package compile_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// Four rows for two ranks, balanced as a job spec says.
func ExampleRegistry_Compile() {
	job, findings := jobspec.Parse("job.yaml", []byte(`
name: demo
sources: [{name: web, files: web/*.jsonl}]
batch: {sequence_length: 100, sequences: 4}
topology: {dp: 2}
strategy:
  - distribute: dp
  - cost: tokens * tokens
  - balance: lpt
`), "", jobspec.CheckCost(compile.CheckCost))
	if findings != nil {
		fmt.Println(findings)
		return
	}
	plan, err := compile.Registry{}.Compile(job)
	if err != nil {
		fmt.Println(err)
		return
	}
	tree, _ := mesh.New(mesh.Sizes{DP: 2, CP: 1, PP: 1, TP: 1, VPP: 1, EP: 1})
	result, err := new(strategy.Runner).Run(plan, strategy.Input{
		Tree: tree, Shape: strategy.Shape{Rows: 4, SequenceLength: 100, MicrobatchSize: 1, Packing: true},
		Draw: func([]uint64) (*dgraph.Buffer, []int32, error) {
			return &dgraph.Buffer{Source: make([]int32, 4), Seq: make([]int64, 4), Index: []int32{0, 1, 2, 3}, Tokens: []int32{100, 20, 90, 60}}, []int32{0, 1, 2, 3}, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ranks", result.Rank, "microbatches", result.Microbatch)
	// Output:
	// ranks [0 0 1 1] microbatches [0 1 0 1]
}
