package sourceloader_test

import (
	"fmt"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/internal/testdata"
	"github.com/millrace-data/millrace/jobspec"
)

// BenchmarkFirstBlock reads the first block of real sources: cold, in a loader that has to open
// the source and its tokenizer, and in a warm one, which has, as a shadow does.
func BenchmarkFirstBlock(b *testing.B) {
	dir, ok := testdata.Find()
	if !ok {
		b.Skip("the data folder is not there: set MILLRACE_DATA")
	}
	for _, s := range []struct{ name, files, transforms string }{
		{"jsonl", "text/gsm8k/*.jsonl", `text: "{question}\n{answer}"`},
		{"jsonl.gz", "text/law-de/*", ""},
		{"parquet", "parquet/bible-fr/*.parquet", `text: "{input_text}\n{target_text}"`},
	} {
		steps := fmt.Sprintf("tokenize: {encoding: cl100k_base, ranks: %s/tokenizers/tiktoken/cl100k_base.tiktoken}", dir)
		if s.transforms != "" {
			steps = s.transforms + "}, {" + steps
		}
		job, findings := jobspec.Parse("bench.yaml", fmt.Appendf(nil,
			"name: bench\nsources: [{name: s, files: %q, transforms: [{%s}]}]\nmix: {weights: {s: 1}}\nbatch: {sequence_length: 8192, sequences: 1}\n", dir+"/"+s.files, steps), dir)
		if err := findings.Err(); err != nil {
			b.Fatal(err)
		}
		read := func(b *testing.B, src *sourceloader.Source) {
			if _, err := src.Read(b.Context(), store.Local{}, src.Chain.Worker(), 0, sourceloader.Bans{}); err != nil {
				b.Fatal(err)
			}
		}
		open := func(b *testing.B) *sourceloader.Source {
			src, err := sourceloader.Open(b.Context(), store.Local{}, job, 0, transform.NewShared(job.Seed, nil))
			if err != nil {
				b.Fatal(err)
			}
			return src
		}
		b.Run(s.name+"/cold", func(b *testing.B) {
			for b.Loop() {
				read(b, open(b))
			}
		})
		b.Run(s.name+"/warm", func(b *testing.B) {
			src := open(b)
			for b.Loop() {
				read(b, src)
			}
		})
	}
}
