package jobspec_test

import (
	"fmt"

	"github.com/millrace-data/millrace/jobspec"
)

func ExampleParse() {
	job, findings := jobspec.Parse("demo.yaml", []byte(`
name: demo
sources:
  - {name: code, files: src/**/*.go, format: text}
  - {name: docs, files: docs/*.md, long: truncate}
mix: {weights: {code: 3, docs: 1}}
batch: {sequence_length: 2048, tokens: 128Ki}
`), "/specs")
	fmt.Println(findings)
	fmt.Println(job.Batch.Sequences, job.Mix.Stages[0].Weights["code"], job.Sources[1].Long)

	_, findings = jobspec.Parse("demo.yaml", []byte("name: demo\nbatch: {sequence_lenght: 2048, tokens: 128Ki}\n"), "/specs")
	fmt.Println(findings)
	// Output:
	// demo.yaml:6: warning: mix.weights: the weights sum to 4: they are normalised
	// 64 0.75 {truncate 2048}
	// demo.yaml:1: sources: is missing, valid is a list, each item a group of name, files, format, chunk_bytes, transforms, keep, long, shuffle, bad_records, max_record, max_elements, limit
	// demo.yaml:2: batch.sequence_length: is missing, valid is a whole number such as 4096, 100k or 64Ki
	// demo.yaml:2: batch.sequence_lenght: unknown field, did you mean "sequence_length"? Valid are sequence_length, sequences, tokens, microbatch_size, packing, context_split, fill, outliers
}
