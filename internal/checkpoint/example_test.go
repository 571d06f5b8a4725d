package checkpoint_test

import (
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/millrace-data/millrace/internal/checkpoint"
)

// A planner logs each step before it publishes the plan. A key frame is the position
// before its step, so that a restarted planner takes the last one and applies the
// records from there on.
func Example() {
	disk := vfs.NewMem() // leave Options.FS out for the real one
	opts := checkpoint.Options{Identity: [32]byte{1}, FS: disk}

	log, err := checkpoint.Open("state/log", opts)
	if err != nil {
		fmt.Println(err)
		return
	}
	for step := range int64(7) {
		var frame []byte
		if step%4 == 0 {
			frame = fmt.Appendf(nil, "position before step %d", step)
		}
		if err := log.Append(step, fmt.Appendf(nil, "inputs of step %d", step), frame); err != nil {
			fmt.Println(err)
		}
	}
	log.Close()

	log, err = checkpoint.Open("state/log", opts)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer log.Close()
	at, frame, _, err := log.Frame(math.MaxInt64)
	fmt.Println(string(frame), err)
	err = log.Records(at, math.MaxInt64, func(step int64, record []byte) error {
		fmt.Println(step, string(record))
		return nil
	})
	fmt.Println(err)
	// Output:
	// position before step 4 <nil>
	// 4 inputs of step 4
	// 5 inputs of step 5
	// 6 inputs of step 6
	// <nil>
}
