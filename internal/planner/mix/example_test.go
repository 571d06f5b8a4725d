package mix_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/planner/mix"
)

// Two sources, of which the second takes over from step 10 on, within three steps.
func Example() {
	schedule := mix.NewSchedule([]mix.Stage{
		{From: 0, Weights: []float64{3, 1}},
		{From: 10, Ramp: "linear", Over: 3, Weights: []float64{1, 3}},
	})
	for _, step := range []int64{9, 10, 11, 12, 13} {
		shares := schedule.Shares(step)
		fmt.Printf("step %d: %.3f %.3f\n", step, part(shares[0]), part(shares[1]))
	}
	// The first source is used up: the other gets all.
	fmt.Println(part(mix.Without(schedule.Shares(0), []bool{true, false})[1]))
	// Output:
	// step 9: 0.750 0.250
	// step 10: 0.625 0.375
	// step 11: 0.500 0.500
	// step 12: 0.375 0.625
	// step 13: 0.250 0.750
	// 1
}

// part is a share as a fraction, to print it; the planner never leaves integers.
func part(share uint64) float64 { return float64(share) / (1 << mix.Bits) }
