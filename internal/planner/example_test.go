package planner_test

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/planner"
	"github.com/millrace-data/millrace/jobspec"
)

// A planner serves until its context ends; it waits for loaders and constructors meanwhile.
func ExampleRun() {
	job, findings := jobspec.Parse("demo.yaml", []byte("name: demo\nsources: [{name: web, files: web/*.jsonl}]\nbatch: {sequence_length: 8, sequences: 2}\n"), "/specs")
	if err := findings.Err(); err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	err := planner.Run(ctx, planner.Options{Job: job, Address: "127.0.0.1:0", Serving: func(string) {
		fmt.Println("serving")
		stop()
	}})
	fmt.Println("ended:", err)
	// Output:
	// serving
	// ended: <nil>
}
