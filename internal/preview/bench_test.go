package preview_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// BenchmarkReport plans a job of ten sources of text, 128 Ki tokens a step, with
// its files in memory.
func BenchmarkReport(b *testing.B) {
	st, rng := &store.Memory{}, rand.New(rand.NewPCG(1, 1))
	var sources, weights []string
	for s := range 10 {
		for f := range 4 {
			var text strings.Builder
			for range 1000 {
				fmt.Fprintf(&text, `{"text":%q}`+"\n", words(rng, int(16*rng.ExpFloat64()*rng.ExpFloat64())+8))
			}
			st.Put(fmt.Sprintf("s%d-%d.jsonl", s, f), []byte(text.String()))
		}
		sources = append(sources, fmt.Sprintf("  - {name: s%d, files: s%d-*.jsonl}", s, s))
		weights = append(weights, fmt.Sprintf("s%d: 0.1", s))
	}
	spec := "name: bench\nsources:\n" + strings.Join(sources, "\n") + "\nmix: {weights: {" + strings.Join(weights, ", ") + "}}\n" +
		"batch: {sequence_length: 4096, sequences: 32}\ntopology: {dp: 8}\nstrategy: [{mix: {}}, distribute: dp, cost: quadratic, balance: auto]\n"
	job, findings := jobspec.Parse("bench.yaml", []byte(spec), "")
	if err := findings.Err(); err != nil {
		b.Fatal(err)
	}
	const steps = 200
	var tokens int64
	for b.Loop() {
		j, err := preview.Open(b.Context(), preview.Options{Job: job, Store: st})
		if err != nil {
			b.Fatal(err)
		}
		r, err := j.Report(b.Context(), preview.ReportOptions{Steps: steps})
		if err != nil {
			b.Fatal(err)
		}
		tokens += r.Tokens
	}
	b.ReportMetric(float64(steps*b.N)/b.Elapsed().Seconds(), "steps/s")
	b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
}
