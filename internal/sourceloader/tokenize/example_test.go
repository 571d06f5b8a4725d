package tokenize_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/sourceloader/tokenize"
)

// The byte-level encoding needs no file. The others are loaded by name with
// their rank file: tokenize.Load("cl100k_base", "ranks/cl100k_base.tiktoken", "").
func Example() {
	e := tokenize.Bytes()
	enc := e.NewEncoder() // one for each goroutine

	ids := enc.Append(nil, []byte("héllo"))
	ids = append(ids, e.EOT())
	fmt.Println(ids)

	text, err := e.Decode(ids)
	fmt.Println(string(text), err)

	_, err = tokenize.Load("cl100k", "", "")
	fmt.Println(err)
	// Output:
	// [104 195 169 108 108 111 256]
	// héllo<|endoftext|> <nil>
	// unknown encoding "cl100k"; did you mean cl100k_base? valid are bytes, r50k_base, p50k_base, cl100k_base, o200k_base
}
