package main

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// Steps are planned from blocks that are made up, one after the other.
func Example() {
	p := planOf(plan.Config{
		Sources: []plan.Source{{Name: "text", Blocks: 10}}, Schedule: mix.NewSchedule([]mix.Stage{{Weights: []float64{1}}}),
		SequenceLength: 8, Rows: 2, Packing: true, Ahead: 2, Window: 8,
	}, []int32{4, 4})
	for range 3 {
		s, before := p.next()
		fmt.Println("step", s.Step, "begins in block", before.Cursors[0].Seq, "and has", s.Filled, "tokens")
	}
	// Output:
	// step 0 begins in block 0 and has 16 tokens
	// step 1 begins in block 2 and has 16 tokens
	// step 2 begins in block 4 and has 16 tokens
}
