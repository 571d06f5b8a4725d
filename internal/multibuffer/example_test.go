package multibuffer_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/multibuffer"
)

// The sums of two messages, the first of which comes in two parts.
func Example() {
	for _, sum := range multibuffer.Sums([]multibuffer.Message{
		{[]byte("mill"), []byte("race")},
		{[]byte("millrace")},
	}) {
		fmt.Printf("%x\n", sum)
	}
	// Output:
	// 590c910f43b1429c4ca7dd9717aabfa516bb4d0fd8dce868bb636a5a89cb9135
	// 590c910f43b1429c4ca7dd9717aabfa516bb4d0fd8dce868bb636a5a89cb9135
}
