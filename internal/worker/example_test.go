package worker_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/worker"
)

// Types of columns are written the same way in Python and here. TestKinds of this package
// shows an environment at work.
func ExampleParseType() {
	for _, text := range []string{"string", "list<int?>", "list<text>"} {
		t, err := worker.ParseType(text)
		fmt.Println(t, err)
	}
	// Output:
	// string <nil>
	// list<int?> <nil>
	// null type "text" is none of string, bytes, int, float, bool, tokens, list<...>
}
