package input_test

import (
	"context"
	"fmt"
	"io"

	"github.com/millrace-data/millrace/internal/sourceloader/format/input"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// A name that ends in .gz is decompressed; any other is read as it is.
func ExampleOpenStream() {
	var st store.Memory
	obj, _ := st.Stat(context.Background(), st.Put("a.txt.gz", []byte("not gzip")))
	s, err := input.OpenStream(context.Background(), &st, obj)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	_, err = io.ReadAll(s)
	fmt.Println(err)
	// Output: decompressing /a.txt.gz: the gzip data is cut off at byte 8, the end of the file: copy the file again
}
