package preview_test

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// TestOutlines: a block that is read without its samples says what it says with them, to the byte that these take in a loader.
func TestOutlines(t *testing.T) {
	st, checked := files(), 0
	for _, r := range recipes {
		job := r.job(t)
		shared := transform.NewShared(job.Seed, nil)
		for i := range job.Sources {
			src, err := sourceloader.Open(t.Context(), st, job, i, shared)
			if err != nil {
				t.Fatal(err)
			}
			for seq := range min(src.Order.Blocks()+1, 4) {
				b, read, err := src.ReadPlaced(t.Context(), st, src.Chain.Worker(), seq, sourceloader.Bans{})
				if err != nil {
					t.Fatal(err)
				}
				o, err := src.Outline(t.Context(), st, src.Chain.Worker(), seq, sourceloader.Bans{})
				if err != nil {
					t.Fatal(err)
				}
				places := slices.Clone(read)
				for k, at := range b.Order {
					places[k] = read[at]
				}
				got, want := o.Report(1, uint64(seq)), b.Report(1, uint64(seq))
				if !proto.Equal(got, want) || !slices.Equal(o.Places, places) || o.Bytes() != b.Bytes() {
					t.Errorf("%s, block %d of source %d: got %v\nwant %v", r.name, seq, i, got, want)
				}
				checked++
			}
		}
	}
	if checked < 20 {
		t.Errorf("%d blocks were compared", checked)
	}
}

// allocated is how many bytes do allocates.
func allocated(do func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// TestHoldsNoTokens: planning, explaining and showing a step take a small part of the memory of a block's tokens.
func TestHoldsNoTokens(t *testing.T) {
	const records, length = 2000, 20_000
	var data bytes.Buffer
	for i := range records {
		fmt.Fprintf(&data, `{"text":"%d %s"}`+"\n", i, strings.Repeat("x", length))
	}
	st := &store.Memory{}
	st.Put("a.jsonl", data.Bytes())
	spec, findings := jobspec.Parse("j.yaml", []byte(`
name: j
sources: [{name: s, files: /a.jsonl, transforms: [{tokenize: bytes}], chunk_bytes: 1GiB}]
batch: {sequence_length: 32768, sequences: 2}
`), "/")
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	const tokens = 4 * records * length // bytes
	for name, do := range map[string]func(*preview.Job) error{
		"plan": func(j *preview.Job) error {
			_, err := j.Run(t.Context(), 3, func(*plan.Step) error { return nil })
			return err
		},
		"explain": func(j *preview.Job) error {
			_, err := j.Explain(t.Context(), preview.Query{Step: 2, Microbatch: -1}, nil)
			return err
		},
		"preview": func(j *preview.Job) error {
			_, err := j.Preview(t.Context(), preview.Query{Step: 2, Microbatch: -1}, nil)
			return err
		},
	} {
		j, err := preview.Open(t.Context(), preview.Options{Job: spec, Store: st, Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		n := allocated(func() { err = do(j) })
		t.Logf("%s allocates %d bytes of memory, a block's tokens take %d", name, n, tokens)
		if err != nil || n > tokens/4 {
			t.Errorf("%s allocates %d bytes of memory, a block's tokens take %d: %v", name, n, tokens, err)
		}
	}
}
