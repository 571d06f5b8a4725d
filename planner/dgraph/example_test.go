package dgraph_test

import (
	"fmt"
	"os"

	"github.com/millrace-data/millrace/planner/dgraph"
)

// Three samples in two rows, and the origin of the second microbatch.
func Example() {
	g, err := dgraph.New(dgraph.Text, &dgraph.Buffer{
		Source: []int32{0, 1, 0}, Seq: []int64{4, 0, 4}, Index: []int32{0, 7, 1}, Tokens: []int32{100, 120, 20},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = g.Place(dgraph.Placement{
		RowOf: []int32{0, 1, 0},
		Rank:  []int32{0, 0}, Microbatch: []int32{0, 1}, Position: []int32{0, 0},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = g.WriteText(os.Stdout, dgraph.Options{Sources: []string{"code", "web"}})
	for _, row := range g.Microbatch(0, 1) {
		for _, sample := range g.Samples(int(row)) {
			fmt.Println("microbatch 1 has", g.Lineage(int(sample)))
		}
	}
	// Output:
	// text graph: 3 samples, 2 rows, 3 placed
	// rank 0
	//   microbatch 0
	//     row 0: 2 samples, 120 tokens
	//       sample code:4:0, 100 tokens, placed
	//       sample code:4:1, 20 tokens, placed
	//   microbatch 1
	//     row 1: 1 sample, 120 tokens
	//       sample web:0:7, 120 tokens, placed
	// microbatch 1 has 1:0:7, placed: row 1, rank 0, microbatch 1, position 0
}
