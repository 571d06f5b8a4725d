package balance_test

import (
	"fmt"

	"github.com/millrace-data/millrace/balance"
)

// Two samples were carried over from the last step; four new ones join them in
// two microbatches of 4096 tokens. What finds no room is carried over again.
func ExamplePacker_Pack() {
	lengths := []int32{900, 1200, 3000, 700, 2500, 1900}
	var packer balance.Packer
	bin, n, err := packer.Pack(lengths, 2, 4096, 2, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(bin, n)
	// Output: [0 0 1 1 -1 0] 6
}
