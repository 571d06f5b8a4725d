package rpc_test

import (
	"fmt"

	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/rpc"
)

// An error keeps its class and its words on the way to another process.
func ExampleToStatus() {
	err := fault.Userf("rank dp=4 is outside the topology: dp ranks are 0 to 3")
	sent := rpc.ToStatus(err) // what a handler returns
	fmt.Println(status.Code(sent))

	got := rpc.FromStatus(sent) // what the caller makes of it
	fmt.Println(fault.ClassOf(got), "-", got)
	// Output:
	// FailedPrecondition
	// user - rank dp=4 is outside the topology: dp ranks are 0 to 3
}
