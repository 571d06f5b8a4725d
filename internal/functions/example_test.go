package functions_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/functions"
	"github.com/millrace-data/millrace/jobspec"
)

// A step whose interpreter is not there is the spec's fault; nothing is started before.
func Example() {
	var set functions.Set
	defer set.Close()
	src := jobspec.Source{Name: "web", Transforms: []jobspec.Transform{&jobspec.Python{Function: "clean:strip", Path: ".", Interpreter: "/no/such/python", Timeout: 60, Memory: 1 << 30, BatchBytes: 1 << 20}}}
	_, err := set.Open(1, &src, 0)
	fmt.Println(fault.ClassOf(err), err != nil)
	// Output: user true
}
