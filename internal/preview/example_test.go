package preview_test

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// Where the documents of a step come from needs a job and a store.
func Example() {
	var files store.Memory
	files.Put("a.jsonl", []byte(`{"text":"abc"}`+"\n"+`{"text":"defgh"}`+"\n"))
	spec, findings := jobspec.Parse("demo.yaml", []byte(`
name: demo
sources: [{name: words, files: /a.jsonl, shuffle: false}]
mix: {weights: {words: 1}, epochs: 2}
batch: {sequence_length: 10, sequences: 1}
`), "/")
	if err := findings.Err(); err != nil {
		fmt.Println(err)
		return
	}
	job, err := preview.Open(context.Background(), preview.Options{Job: spec, Store: &files})
	if err != nil {
		fmt.Println(err)
		return
	}
	x, err := job.Explain(context.Background(), preview.Query{Step: 1, Microbatch: -1}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range x.Samples {
		fmt.Printf("at %d: %d tokens of record %d in %s, epoch %d\n", s.Offset, s.Tokens, s.Record, s.File, s.Epoch)
	}
	// Output:
	// at 0: 6 tokens of record 15 in a.jsonl, epoch 1
	// at 6: 4 tokens of record 0 in a.jsonl, epoch 1
}
