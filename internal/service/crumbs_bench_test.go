package service_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/internal/testdata"
	"github.com/millrace-data/millrace/jobspec"
)

// BenchmarkCrumbs reads 16 MB of JSON Lines through a filter that leaves out 99 of 100 records, in Python or behind a
// function, and 3 functions behind it, in batches of 64 KiB: what is left of each is a fiftieth of a batch.
func BenchmarkCrumbs(b *testing.B) {
	b.Run("filter=python", func(b *testing.B) { benchmarkCrumbs(b, "rare", "") })
	b.Run("filter=native", func(b *testing.B) { benchmarkCrumbs(b, "same", ", {filter: 'len(text) > 91'}") })
}

func benchmarkCrumbs(b *testing.B, function, filter string) {
	python, _ := testdata.Python(b)
	r := pythonPath(b, func(path string) recipe {
		step := func(function string) string {
			return fmt.Sprintf("{python: {function: 'cleaning:%s', interpreter: %q, path: %q, batch_bytes: 64KiB}}", function, python, path)
		}
		steps := step(function) + filter + strings.Repeat(", "+step("same"), 3)
		return recipe{"crumbs", fmt.Sprintf("name: crumbs\nsources: [{name: s, files: /x.jsonl, chunk_bytes: 4MiB, transforms: [%s, {tokenize: bytes}]}]\nbatch: {sequence_length: 512, sequences: 1}\n", steps), 0, ""}
	})
	var text bytes.Buffer
	for i := range 160_000 {
		kind := "often"
		if i%100 == 0 {
			kind = "rarely" // and longer than all others
		}
		fmt.Fprintf(&text, "{\"text\":%q}\n", fmt.Sprintf("%s%s%06d", kind, strings.Repeat(" and so on", 8), i))
	}
	var files store.Memory
	files.Put("x.jsonl", text.Bytes())
	job, findings := jobspec.Parse("j.yaml", []byte(r.spec), "/")
	if err := findings.Err(); err != nil {
		b.Fatal(err)
	}
	ctx, end := context.WithCancel(b.Context())
	passes, err := sourceloader.NewPasses(ctx, 256<<20, 2)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { end(); passes.Close() }()
	src, err := passes.Open(ctx, &files, job, 0, transform.NewShared(1, pythons.Open))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		samples := 0
		for seq := range src.Order.Blocks() {
			_, err := src.Pass(ctx, &files, []*transform.Worker{src.Chain.Worker()}, seq, src.Order.Chunks(seq), func(order.Place, *transform.Sample) error {
				samples++
				return nil
			}, nil)
			if err != nil {
				b.Fatal(err)
			}
		}
		if samples != 1600 {
			b.Fatalf("%d samples", samples)
		}
	}
}
