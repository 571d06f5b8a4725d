package balance_test

import (
	"slices"
	"testing"

	"github.com/millrace-data/millrace/balance"
)

// stepOf is the samples of a step of the planning cycle: short texts for 4096 rows of 8192 tokens, and two rows more.
func stepOf(mean float64) (lengths []int32) {
	const rows, capacity = 4096, 8192
	tokens := int64(0)
	for _, n := range exponential(41, 4*rows*capacity/int(mean), mean, capacity) {
		if tokens >= (rows+2)*capacity {
			break
		}
		lengths, tokens = append(lengths, n), tokens+int64(n)
	}
	return lengths
}

// BenchmarkStep is what a planner does with the samples of a step, one part after the other: it packs them into
// rows, evens the rows, and divides the samples over all ranks.
func BenchmarkStep(b *testing.B) {
	const rows, capacity, carried, leave = 4096, 8192, 20, 32
	lengths := stepOf(110)
	var p balance.Packer
	packed, n, err := p.Pack(lengths, carried, capacity, rows, leave)
	if err != nil {
		b.Fatal(err)
	}
	packed = slices.Clone(packed)
	tokens := lengths[:n]
	costs, others := make([]int64, n), make([]int64, n)
	for i, n := range tokens {
		costs[i], others[i] = cost7b(n), 4096*int64(n)+3*int64(n)*int64(n)
	}
	b.Run("pack", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := p.Pack(lengths, carried, capacity, rows, leave); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(n), "items")
	})
	b.Run("even", func(b *testing.B) {
		var e balance.Evener
		bin := make([]int32, n)
		for b.Loop() {
			copy(bin, packed)
			if err := e.Even(tokens, costs, bin, capacity, rows); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("partition", func(b *testing.B) {
		var balancer balance.Balancer
		for b.Loop() {
			if _, err := balancer.Partition(others, balance.Options{Bins: rows}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
