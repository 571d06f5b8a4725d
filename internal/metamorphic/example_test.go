package metamorphic_test

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/metamorphic"
)

// Outside a bubble of testing/synctest, a run takes as long as its clock says.
func ExampleRun() {
	ops, err := metamorphic.Parse("4 kill loader-0 20ms 0\n9 back - 0s 3\n")
	if err != nil {
		fmt.Println(err)
		return
	}
	opts := metamorphic.Options{Packing: true, Loaders: 2, Constructors: 1, LoaderBuffer: 1 << 20, ConstructorBuffer: 1 << 20, Prefetch: 4, Ahead: 2, Window: 20}
	res, err := metamorphic.Run(context.Background(), 1, opts, ops, nil)
	fmt.Println(res.Steps, err)
	// Output: 54 <nil>
}
