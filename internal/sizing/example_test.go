package sizing_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/sizing"
)

// Images cost nine times what text does: they get most of the workers.
func ExampleDecide() {
	d := sizing.Decide(sizing.Snapshot{
		Cores: 10, Memory: 8 << 30, Constructors: 1, Buffer: 512 << 20,
		Sources: []sizing.Source{{Name: "text", Work: 0.01, Static: true}, {Name: "images", Work: 0.09, Static: true}},
		Options: sizing.Options{PerLoader: 5},
	})
	for n, l := range d.Loaders {
		fmt.Println("loader", n, "reads", l.Sources, "with", l.Workers, "workers")
	}
	// Output:
	// loader 0 reads [text] with 1 workers
	// loader 1 reads [images] with 5 workers
	// loader 2 reads [images] with 5 workers
}
