package sim_test

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/sim"
)

// Outside a bubble of testing/synctest, a run takes as long as its clock says.
func ExampleRun() {
	res, err := sim.Run(context.Background(), sim.Options{Seed: 39})
	fmt.Println(res.Recipe, res.Steps, err)
	// Output: banned records 30 <nil>
}
