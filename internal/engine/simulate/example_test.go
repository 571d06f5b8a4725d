package simulate_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/engine/schedule"
	"github.com/millrace-data/millrace/internal/engine/simulate"
)

// The microbenchmark of the paper with a store of 1 GB.
func Example() {
	cfg := simulate.Config{Limit: 1000 * simulate.MB, Pinned: true, Credits: true, Policy: schedule.Decide}
	res := simulate.Run(simulate.Microbenchmark(), cfg)
	fmt.Printf("%d tasks in %.1f s, store at most %d MB\n", res.Tasks, res.Time.Seconds(), res.PeakStore/simulate.MB)
	// Output: 1760 tasks in 155.8 s, store at most 1000 MB
}
