package spill_test

import (
	"fmt"
	"os"
	"slices"

	"github.com/millrace-data/millrace/internal/sourceloader/spill"
)

// Three records are written, and two of them read back.
func Example() {
	disk := spill.Open(spill.Options{Dir: os.TempDir(), Limit: 1 << 20})
	if err := disk.Reserve(100); err != nil {
		fmt.Println(err)
		return
	}
	file, err := disk.Write(100, slices.Values([][]byte{[]byte("one"), []byte("two"), []byte("three")}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer file.Close()
	err = file.Read([]uint32{0, 2}, func(_ int, record []byte) error {
		fmt.Printf("%s\n", record)
		return nil
	})
	fmt.Println(err)
	// Output:
	// one
	// three
	// <nil>
}
