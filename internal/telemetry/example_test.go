package telemetry_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/telemetry"
)

// A role shows what it keeps anyway, and somebody looks.
func Example() {
	board := telemetry.NewBoard(nil, 0)
	remove := board.Add(telemetry.Part{
		Role: "loader", ID: "loader-0",
		Metrics: func(observe telemetry.Observe) { observe(telemetry.LoaderBlocks, 12, "loader-0") },
		Ready:   func() string { return "a planner at 127.0.0.1:7070" },
	})
	for _, p := range board.Parts() {
		fmt.Printf("%s waits for %s\n", p.ID, p.Ready())
		p.Metrics(func(m telemetry.ID, value float64, labels ...string) {
			fmt.Println(telemetry.Metrics[m].Prometheus(), labels, value)
		})
	}
	remove()
	fmt.Println(len(board.Parts()), "left")
	// Output:
	// loader-0 waits for a planner at 127.0.0.1:7070
	// millrace_loader_blocks_read_total [loader-0] 12
	// 0 left
}
