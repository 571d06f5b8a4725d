package fault_test

import (
	"errors"
	"fmt"
	"io"

	"github.com/millrace-data/millrace/internal/fault"
)

// The innermost function that knows the class sets it; all others wrap.
func ExampleClassOf() {
	lost := fault.Lostf("reading row group 3 of c4.parquet: %w", io.ErrUnexpectedEOF)
	err := fmt.Errorf("source %q: %w", "web", lost)
	fmt.Println(fault.ClassOf(err), errors.Is(err, io.ErrUnexpectedEOF))

	// Someone further out knows better: every replica gave the same short file.
	err = fault.As(fault.User, err)
	fmt.Println(fault.ClassOf(err), "-", err)

	fmt.Println(fault.ClassOf(errors.New("unclassified")))
	// Output:
	// lost true
	// user - source "web": reading row group 3 of c4.parquet: unexpected EOF
	// bug
}
