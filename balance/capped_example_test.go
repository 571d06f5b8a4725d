package balance_test

import (
	"fmt"

	"github.com/millrace-data/millrace/balance"
)

// Three rows are full, but attention makes the first one twice as costly as the
// last. Long samples change places with short ones, and the rows stay full.
func ExampleEvener_Even() {
	tokens := []int32{2000, 2000, 1500, 1500, 1000, 1000, 1000, 1000, 1000}
	costs := make([]int64, len(tokens))
	for i, n := range tokens {
		costs[i] = int64(n) * int64(n) / 1000
	}
	row := []int32{0, 0, 1, 1, 1, 2, 2, 2, 2}
	var evener balance.Evener
	if err := evener.Even(tokens, costs, row, 4096, 3); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(row)
	// Output: [0 1 2 2 2 0 1 0 1]
}
