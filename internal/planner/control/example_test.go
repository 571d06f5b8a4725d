package control_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/jobspec"
)

// A job in process: a loader indexes its source, the job begins, and a block that is read
// becomes a step.
func Example() {
	job, findings := jobspec.Parse("demo.yaml", []byte("name: demo\nsources: [{name: web, files: web/*.jsonl}]\nbatch: {sequence_length: 8, sequences: 2}\n"), "/specs")
	cfg, err := compile.Plan(job, compile.Registry{})
	if findings.Err() != nil || err != nil {
		fmt.Println(findings.Err(), err)
		return
	}
	core := control.New(control.Config{Job: job, Plan: cfg, Loaders: 1, AllowRoots: job.Roots()})
	for _, event := range []control.Event{
		control.LoaderJoined{Session: 1, Name: "here", Address: "here"},
		control.Indexed{Session: 1, Blocks: 1, Manifest: make([]byte, 32)},
		control.Begin{},
		control.BlockRead{Session: 1, Block: plan.BlockRead{Lengths: []int32{5, 8, 3, 7, 1, 8}}},
	} {
		for _, effect := range core.Apply(event) {
			switch e := effect.(type) {
			case control.Index:
				fmt.Println("index source", e.Source)
			case control.Read:
				if e.Seq == 0 {
					fmt.Println("read block 0")
				}
			case control.Cut:
				fmt.Println("step", e.Step.Step, "has", e.Step.Filled, "tokens")
			}
		}
	}
	// Output:
	// index source 0
	// read block 0
	// step 0 has 16 tokens
}
