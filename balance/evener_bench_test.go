package balance_test

import (
	"fmt"
	"testing"

	"github.com/millrace-data/millrace/balance"
)

// BenchmarkEven evens the full rows of steps, as a planner does.
func BenchmarkEven(b *testing.B) {
	for _, bench := range []struct {
		name     string
		rows     int
		capacity int32
		lengths  []int32
	}{
		{"exponential", 4096, 8192, exponential(41, 312_000, 110, 8192)},
		{"images-and-text", 16, 32768, imagesAndText(21, 1000, 16384)},
		{"images-and-text", 256, 32768, imagesAndText(21, 10_000, 16384)},
		{"images-and-text", 4096, 8192, imagesAndText(21, 40_000, 8192)},
		{"images-and-text", 1024, 131072, imagesAndText(21, 120_000, 16384)},
		{"images-and-text", 4096, 65536, imagesAndText(21, 300_000, 16384)},
		{"lognormal", 2048, 32768, lognormal(7, 60_000, 16384)},
	} {
		for _, w := range withCosts(workload{lengths: bench.lengths}) {
			b.Run(fmt.Sprintf("%s/rows=%d/C=%d/%s", bench.name, bench.rows, bench.capacity, w.cost), func(b *testing.B) {
				var p balance.Packer
				var e balance.Evener
				packed, n, err := p.Pack(w.lengths, 0, bench.capacity, bench.rows, 32)
				if err != nil {
					b.Fatal(err)
				}
				lengths, costs, bin := w.lengths[:n], w.costs[:n], make([]int32, n)
				before, mean, _ := loads(b, lengths, costs, packed[:n], bench.capacity, bench.rows)
				b.ReportAllocs()
				for b.Loop() {
					copy(bin, packed)
					if err := e.Even(lengths, costs, bin, bench.capacity, bench.rows); err != nil {
						b.Fatal(err)
					}
				}
				after, _, _ := loads(b, lengths, costs, bin, bench.capacity, bench.rows)
				b.ReportMetric(float64(n), "items")
				b.ReportMetric(before/mean, "before")
				b.ReportMetric(after/mean, "after")
			})
		}
	}
}

// BenchmarkFill is the trade-off of fill and balance: rows packed to a part, and evened.
func BenchmarkFill(b *testing.B) {
	ws := withCosts(
		workload{name: "images-and-text", lengths: imagesAndText(21, 100_000, 32768), capacity: 32768},
		workload{name: "lognormal", lengths: lognormal(7, 100_000, 8192), capacity: 8192},
		workload{name: "answers", lengths: answers(7, 100_000, 8192), capacity: 32768},
	)
	ws = append(ws, withCosts(traces(b)...)...)
	for _, w := range ws {
		for _, part := range []float64{0.90, 0.95, 0.98, 0.99, 0.995} {
			b.Run(fmt.Sprintf("%s/%s/fill=%.3f", name(w.workload), w.cost, part), func(b *testing.B) {
				var r rows
				var bin []int32
				bins := binsAt(w.workload, part)
				r.even(b, w, bins) // grows the scratch
				b.ReportAllocs()
				for b.Loop() {
					bin = r.even(b, w, bins)
				}
				most, mean, unplaced := loads(b, w.lengths, w.costs, bin, w.capacity, bins) // fails over a cap
				bound := float64(costBound(w.lengths, w.costs, w.capacity, bins))
				b.ReportMetric(100*(most/mean-1), "gap%")
				b.ReportMetric(100*(bound/mean-1), "boundgap%")
				b.ReportMetric(float64(unplaced), "unplaced")
			})
		}
	}
}
