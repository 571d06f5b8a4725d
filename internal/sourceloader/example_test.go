package sourceloader_test

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// What a loader does with a source: index it, read a block, and know the order
// its samples come in.
func ExampleOpen() {
	var files store.Memory
	files.Put("a.jsonl", []byte(`{"text":"one"}`+"\n"+`{"text":"seventeen"}`+"\n"+`{"text":""}`+"\n"))

	job, findings := jobspec.Parse("demo.yaml", []byte(`
name: demo
sources:
  - name: words
    files: /a.jsonl
    transforms: [{filter: len(text) > 0}, {tokenize: bytes}]
    long: {rule: split, max: 4}
mix: {weights: {words: 1}}
batch: {sequence_length: 16, sequences: 1}
`), "/")
	if err := findings.Err(); err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	src, err := sourceloader.Open(ctx, &files, job, 0, transform.NewShared(job.Seed, nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	block, err := src.Read(ctx, &files, src.Chain.Worker(), 0, sourceloader.Bans{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range block.Len() {
		fmt.Println(block.Sample(i))
	}
	fmt.Println("filtered out:", block.Filtered)
	// Output:
	// [111 110 101]
	// [115 101 118 101]
	// [110]
	// [110 116 101 101]
	// filtered out: 1
}
