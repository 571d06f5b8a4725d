package checkpoint_test

import (
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/millrace-data/millrace/internal/checkpoint"
)

// A planner logs each step before it publishes the plan; a restarted one takes
// the last key frame and applies the records after it.
func Example() {
	disk := vfs.NewMem() // leave Options.FS out for the real one
	opts := checkpoint.Options{Identity: [32]byte{1}, KeyFrameEvery: 4, FS: disk}

	log, err := checkpoint.Open("state/log", opts)
	if err != nil {
		fmt.Println(err)
		return
	}
	for step := range int64(7) {
		var frame []byte
		if log.FrameDue(step) {
			frame = fmt.Appendf(nil, "state after step %d", step)
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
	err = log.Records(at+1, math.MaxInt64, func(step int64, record []byte) error {
		fmt.Println(step, string(record))
		return nil
	})
	fmt.Println(err)
	// Output:
	// state after step 4 <nil>
	// 5 inputs of step 5
	// 6 inputs of step 6
	// <nil>
}
