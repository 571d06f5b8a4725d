package main

import "fmt"

// Samples of one length fill two rows for each of two ranks, and nothing is uneven.
func Example() {
	in := input{Name: "even", Capacity: 100, Rows: 4, Ranks: 2, Widest: 1, A: 10, length: pareto(1e9, 25)}
	out, err := in.serve(1, 1000)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d samples, %.2f full, ranks %.2f, slots %.2f of the mean\n", len(out.Tokens), out.Full, out.OverRanks, out.OverSlots)
	// Output:
	// 16 samples, 1.00 full, ranks 1.00, slots 1.00 of the mean
}
