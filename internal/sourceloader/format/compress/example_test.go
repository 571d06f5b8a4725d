package compress_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/millrace-data/millrace/internal/sourceloader/format/compress"
)

// Two members, one after the other, are one stream.
func ExampleNewGzip() {
	var file bytes.Buffer
	for _, text := range []string{"a mill ", "by a river"} {
		w := gzip.NewWriter(&file)
		w.Write([]byte(text))
		w.Close()
	}
	text, err := io.ReadAll(compress.NewGzip(&file))
	fmt.Printf("%q %v\n", text, err)
	// Output: "a mill by a river" <nil>
}
