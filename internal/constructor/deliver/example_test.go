package deliver_test

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/constructor/deliver"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// A builder claims the plan of a step and returns it built; two ranks get it, and when both
// are done with it the planner hears so and the step is let go.
func ExampleSteps() {
	ctx := context.Background()
	steps := deliver.New()
	steps.Take(&pb.ConstructorJob{Buckets: []uint32{0}, Mesh: &pb.Mesh{Dp: 1, Cp: 2, Pp: 1, Tp: 1}, Ahead: 4}, 1<<20)
	steps.Restart(&pb.Restart{Generation: 1})
	steps.Plan(&pb.StepPlan{Generation: 1, Step: 0, SampleLength: []uint32{100}})

	plan, err := steps.Claim(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	steps.Done(&deliver.Step{Generation: plan.Generation, Number: plan.Step, Bytes: 400, Content: "what was built"})
	for cp := range uint32(2) {
		rank := deliver.Caller{Rank: deliver.Rank{CP: cp}, Generation: 1}
		step, _, err := steps.Get(ctx, rank, 0)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(rank.Rank, "gets", step.Content)
		rank.Acked = 1
		if err := steps.Ack(rank); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(steps.Usage().HeldBytes, "bytes are held")
	}
	_, moved := steps.TakeReports()
	for _, acked := range moved {
		fmt.Println("bucket", acked.Bucket, "is done with the steps before", acked.Step)
	}
	// Output:
	// rank dp=0 cp=0 pp=0 tp=0 gets what was built
	// 400 bytes are held
	// rank dp=0 cp=1 pp=0 tp=0 gets what was built
	// 0 bytes are held
	// bucket 0 is done with the steps before 1
}
