package reference_test

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// The reference needs no service: a job and a store are enough.
func ExampleRead() {
	var files store.Memory
	files.Put("a.jsonl", []byte(`{"text":"abc"}`+"\n"+`{"text":"defgh"}`+"\n"))
	job, findings := jobspec.Parse("demo.yaml", []byte(`
name: demo
sources: [{name: words, files: /a.jsonl, shuffle: false}]
mix: {weights: {words: 1}, epochs: 2}
batch: {sequence_length: 10, sequences: 1}
`), "/")
	if err := findings.Err(); err != nil {
		fmt.Println(err)
		return
	}
	n, digest, err := reference.Read(context.Background(), &files, job, nil, -1, func(s *reference.Step) error {
		for _, row := range s.Rows {
			fmt.Println("step", s.Step, row.Segments)
		}
		return nil
	})
	fmt.Println(n, "steps, a digest of", len(digest), "bytes,", err)
	// Output:
	// step 0 [[97 98 99 256] [100 101 102 103 104 256]]
	// step 1 [[100 101 102 103 104 256] [97 98 99 256]]
	// 2 steps, a digest of 32 bytes, <nil>
}
