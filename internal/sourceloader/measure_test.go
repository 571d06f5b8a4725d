package sourceloader

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// elsewhere takes its time in another process, as far as this one sees.
type elsewhere struct{ callee }

func (e *elsewhere) Call(ctx context.Context, in *format.Batch) (*format.Batch, []int32, error) {
	time.Sleep(30 * time.Millisecond)
	return e.callee.Call(ctx, in)
}

// TestMeasureFunctions: a worker whose function computes in another process computes, and does not wait; one that a model
// server has to answer waits.
func TestMeasureFunctions(t *testing.T) {
	t.Parallel()
	if threadTime() == 0 {
		t.Skip("nothing is known of the time of threads here")
	}
	var files store.Memory
	files.Put("d/0.jsonl", []byte(`{"text":"a"}`+"\n"+`{"text":"b"}`+"\n"))
	for step, computes := range map[string]bool{
		`{python: "t:slow"}`: true,
		`{call: {url: "http://x/", request: '{"t": "{text}"}', give: {column: text, at: t}, answers: a}}`: false,
	} {
		job, findings := jobspec.Parse("j.yaml", []byte(`
name: j
sources: [{name: s, files: /d/*.jsonl, transforms: [`+step+`, {tokenize: bytes}]}]
batch: {sequence_length: 16, sequences: 1}
`), "/")
		if err := findings.Err(); err != nil {
			t.Fatal(err)
		}
		text := []transform.Column{{Name: "text", Kind: format.String}}
		open := func(uint64, *jobspec.Source, int) (*transform.Function, error) {
			e := &elsewhere{callee{become: func(s string) ([]string, error) { return []string{s}, nil }, out: true}}
			return &transform.Function{Name: "t:slow", Kind: transform.MapFunction, In: text, Out: text, Caller: e}, nil
		}
		src, err := Open(t.Context(), &files, job, 0, transform.NewShared(1, open))
		if err != nil {
			t.Fatal(err)
		}
		x, err := src.Measure(t.Context(), &files, 2)
		if err != nil || x.Samples != 2 || x.Seconds < 0.03 || x.CPU > x.Seconds {
			t.Fatalf("%s: %+v, %v", step, x, err)
		}
		if said := fmt.Sprintf("%s: a worker computes for %.6f of %.6f s", step, x.CPU, x.Seconds); computes && x.CPU < 0.0299 || !computes && x.CPU > x.Seconds-0.0299 {
			t.Error(said)
		}
	}
}
