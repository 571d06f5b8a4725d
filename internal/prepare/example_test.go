package prepare_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/millrace-data/millrace/internal/prepare"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// Two documents become a shard; a record without text is left out by the filter.
func ExampleRun() {
	var files store.Memory
	files.Put("a.jsonl", []byte(`{"text":"abc"}`+"\n"+`{"text":""}`+"\n"+`{"text":"defgh"}`+"\n"))
	job, findings := jobspec.Parse("demo.yaml", []byte(`
name: demo
sources: [{name: words, files: /a.jsonl, transforms: [filter: len(text) > 0, tokenize: bytes, append_eod: {}]}]
mix: {weights: {words: 1}}
batch: {sequence_length: 10, sequences: 1}
`), "/")
	if err := findings.Err(); err != nil {
		fmt.Println(err)
		return
	}
	out, err := os.MkdirTemp("", "prepare")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(out)
	results, err := prepare.Run(context.Background(), prepare.Options{Job: job, Out: out, Store: &files})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := results[0]
	shards, _ := filepath.Glob(filepath.Join(r.Folder, "*.parquet"))
	fmt.Println(r.Rows, "documents,", r.Tokens, "tokens,", r.Filtered, "filtered out;", filepath.Base(shards[0]))
	// Output:
	// 2 documents, 10 tokens, 1 filtered out; shard-000000-00000.parquet
}
