package schedule_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/engine/schedule"
)

// A read and a decode share four CPU slots: the decode has an input, so it goes first.
func ExampleDecide() {
	cpu := []schedule.Amount{schedule.Slot}
	s := schedule.Snapshot{
		Resources: []schedule.Resource{{Name: "cpu", Slots: 4 * schedule.Slot, Free: 2 * schedule.Slot}},
		Operators: []schedule.Operator{
			{Name: "read", Needs: cpu, Queued: 100, Stored: 5e6, Running: make([]schedule.Task, 2),
				Estimate: schedule.Estimate{Tasks: 1, Duration: schedule.Second, Out: 5e6, Parts: 1000}, Declared: schedule.Declared{Partition: 5e6}},
			{Name: "decode", Needs: cpu, Queued: 1, QueuedBytes: 5e6, NextBytes: 5e6},
		},
		Limit: 20e6, Used: 5e6, Pinned: true,
	}
	d := schedule.Decide(&s)
	fmt.Println(d.Launch, s.Operators[d.Operator].Name)
	// Output: true decode
}
