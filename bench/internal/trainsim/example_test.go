package trainsim_test

import (
	"fmt"

	"github.com/millrace-data/millrace/bench/internal/trainsim"
)

// What balancing is worth for 8 ranks of 4 GPUs when images are heavy-tailed.
func Example() {
	scene := trainsim.Scene{
		Name: "small", Context: 8192, DP: 8, TP: 4, Microbatches: 1, Samples: 64,
		Data: trainsim.Captioned(trainsim.Pareto(0.6, 48), trainsim.CaptionText()),
	}
	for _, pair := range trainsim.Pairs()[2:4] {
		out, err := trainsim.Simulate(scene, pair, 1)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s: backbone %.1fx, hybrid %.1fx, %.0f %% of the ideal\n", pair.Name(),
			out.Speedup(trainsim.Backbone), out.Speedup(trainsim.Hybrid), 100*out.Efficiency(trainsim.Hybrid))
	}
	// Output:
	// tMoE-25B+ViT-1B: backbone 1.4x, hybrid 1.7x, 100 % of the ideal
	// tMoE-25B+ViT-2B: backbone 1.3x, hybrid 1.7x, 100 % of the ideal
}
