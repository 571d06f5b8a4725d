package preview_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// doubled gives each text twice.
type doubled struct{}

func (doubled) Call(_ context.Context, in *format.Batch) (*format.Batch, []int32, error) {
	out, from := &format.Batch{}, []int32(nil)
	var rec format.Record
	for i := range in.Len() {
		in.Record(i, &rec)
		text := append(bytes.Clone(rec.Values[0].Bytes), rec.Values[0].Bytes...)
		out.Add(&format.Record{Row: rec.Row, Values: []format.Value{{Kind: format.String, Bytes: text}}})
		from = append(from, int32(i))
	}
	return out, from, nil
}

func doubling(_ uint64, src *jobspec.Source, step int) (*transform.Function, error) {
	text := []transform.Column{{Name: "text", Kind: format.String}}
	return &transform.Function{
		Name: src.Transforms[step].(*jobspec.Python).Function, Kind: transform.MapFunction, In: text, Out: text,
		Runtime: "Python 3.12.1, NumPy 2.1.0", Caller: doubled{},
	}, nil
}

var rewrite = flag.Bool("rewrite", false, "write the plan of operators in testdata")

// TestOperators compares the page, and its JSON form, with testdata/operators.txt.
func TestOperators(t *testing.T) {
	var st store.Memory
	lines := func(n int) (data []byte) {
		for i := range n {
			data = fmt.Appendf(data, `{"n":%d,"text":%q}`+"\n", i, strings.Repeat("ab", 20))
		}
		return append(data, "no JSON\n"...)
	}
	st.Put("a.jsonl", lines(40))
	st.Put("b.jsonl", lines(3000))
	job, findings := jobspec.Parse("demo.yaml", []byte(`
name: demo
sources:
  - {name: native, files: /a.jsonl, transforms: [{filter: n < 20}, {tokenize: bytes}, {append_eod: {}}]}
  - name: functions
    files: /a.jsonl
    bad_records: skip
    transforms:
      - filter: n < 20
      - python: "m:twice"
      - python: {function: "m:again", batch_bytes: 8KiB}
      - replace: {pattern: a, with: A}
      - python: "m:last"
      - tokenize: bytes
  - name: fused
    files: /a.jsonl
    bad_records: skip
    transforms: [{python: "m:twice"}, {filter: n < 20}, {text: "{n} {text}"}, {python: "m:again"}, {normalize: nfc}, {filter: len(text) > 165}, {replace: {pattern: a, with: b}}, {tokenize: bytes}]
  - name: by itself
    files: /a.jsonl
    transforms: [{python: "m:twice"}, {filter: n < 20}, {pixels: jpg}, {filter: n > 3}, {python: "m:again"}, {tokenize: bytes}]
    keep: jpg
  - {name: many chunks, files: [/a.jsonl, /b.jsonl], chunk_bytes: 2KiB, shuffle: {block: 3}}
  - {name: long chunk, files: /b.jsonl}
mix: {weights: {native: 1, functions: 1, fused: 1, by itself: 1, many chunks: 1, long chunk: 1}}
batch: {sequence_length: 16, sequences: 1}
resources: {loader_buffer: 64MiB}
`), "/")
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	plan, err := preview.Operators(t.Context(), &st, doubling, job, 4, 256)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.MarshalIndent(plan, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	got := plan.String() + "\n" + string(data) + "\n"
	path := filepath.Join("testdata", "operators.txt")
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != got {
		t.Errorf("%v\n%s", err, got)
	}
}
