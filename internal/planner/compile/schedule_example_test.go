package compile_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/jobspec"
)

// The mix of a job spec, as the planner draws by it.
func ExampleSchedule() {
	job, findings := jobspec.Parse("demo.yaml", []byte(`
name: demo
sources:
  - {name: web, files: web/*.jsonl}
  - {name: code, files: code/*.jsonl}
mix:
  stages:
    - weights: {web: 0.75, code: 0.25}
    - {from: 100, weights: {code: 1}}
batch: {sequence_length: 2048, sequences: 8}
`), "/specs")
	if err := findings.Err(); err != nil {
		fmt.Println(err)
		return
	}
	schedule := compile.Schedule(job)
	for _, step := range []int64{0, 99, 100} {
		for i, share := range schedule.Shares(step) {
			fmt.Printf("step %d: %s %.2f\n", step, job.Sources[i].Name, float64(share)/(1<<mix.Bits))
		}
	}
	// Output:
	// step 0: web 0.75
	// step 0: code 0.25
	// step 99: web 0.75
	// step 99: code 0.25
	// step 100: web 0.00
	// step 100: code 1.00
}
