package failpoint_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/failpoint"
)

// A role passes a site with one call. Nothing happens there unless the binary was built
// with the tag and its environment says so.
func Example() {
	if err := failpoint.Error(failpoint.FetchBefore); err != nil {
		fmt.Println("asking a loader:", err)
		return
	}
	fmt.Println("asked")
	// Output: asked
}
