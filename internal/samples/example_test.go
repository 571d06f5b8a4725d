package samples_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/samples"
)

// A loader sends two samples of a block, with one kept column.
func Example() {
	set := samples.Set{
		Tokens:  []int32{11, 12, 13, 21},
		Offsets: []int32{0, 3, 4},
		Kept:    [][][]byte{{[]byte("a.jpg"), nil}},
	}
	wire, err := samples.Encode([]samples.Set{set})
	if err != nil {
		fmt.Println(err)
		return
	}
	got, err := samples.Decode(wire) // the sets borrow from wire
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range got[0].Len() {
		fmt.Printf("%v %q\n", got[0].Sample(i), got[0].Kept[0][i])
	}
	// Output:
	// [11 12 13] "a.jpg"
	// [21] ""
}
