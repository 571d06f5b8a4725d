package mirror_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/mirror"
	"github.com/millrace-data/millrace/internal/object"
)

// A planner writes a log and its mirror. Another one, on another machine, takes over: it
// has what was acknowledged, and the first one writes no more.
func Example() {
	store := &object.Memory{}
	open := func() *mirror.Log {
		log, err := mirror.Open(context.Background(), mirror.Options{Dir: "log", Log: checkpoint.Options{FS: vfs.NewMem()}, Store: store})
		if err != nil {
			panic(err)
		}
		return log
	}
	first := open()
	fmt.Println(first.Fence(1), first.Append(0, []byte("record"), []byte("frame")))

	second := open()
	fmt.Println(second.Fence(2))
	last, _ := second.Last()
	fmt.Println("last step", last)
	fmt.Println(errors.Is(first.Append(1, []byte("record"), nil), checkpoint.ErrDeposed))
	// Output:
	// <nil> <nil>
	// <nil>
	// last step 0
	// true
}
