package balance_test

import (
	"fmt"
	"testing"

	"github.com/millrace-data/millrace/balance"
)

// grid is from a small job to one of 16 k data-parallel ranks.
var grid = []size{{512, 8}, {512, 64}, {2048, 64}, {16384, 64}, {16384, 256}, {16384, 1024}, {102_400, 1024}, {303_104, 4096}, {303_104, 8192}, {1 << 20, 16384}}

func BenchmarkPartition(b *testing.B) {
	eachCell(b, func(b *testing.B, s size, costs []int64) { benchmarkPartition(b, costs, balance.Options{Bins: s.bins}) })
}

func BenchmarkPartitionEqual(b *testing.B) {
	eachCell(b, func(b *testing.B, s size, costs []int64) {
		benchmarkPartition(b, costs, balance.Options{Bins: s.bins, Equal: true})
	})
}

// BenchmarkPartitionMethod is each method alone, where differencing is not out of the question.
func BenchmarkPartitionMethod(b *testing.B) {
	for _, s := range []size{{16384, 64}, {16384, 1024}, {102_400, 1024}} {
		costs := modelCost("7b", draw("LN", s.n, 1))
		for _, method := range []string{balance.MethodLPT, balance.MethodKK} {
			b.Run(fmt.Sprintf("%s/%dx%d", method, s.n, s.bins), func(b *testing.B) {
				benchmarkPartition(b, costs, balance.Options{Bins: s.bins, Method: method})
			})
		}
	}
}

func BenchmarkPartitionGroups(b *testing.B) {
	for _, s := range []size{{102_400, 1024}, {303_104, 4096}} {
		costs := modelCost("7b", draw("LN", s.n, 1))
		b.Run(fmt.Sprintf("%dx%d", s.n, s.bins), func(b *testing.B) {
			benchmarkPartition(b, costs, balance.Options{Bins: s.bins, Groups: s.bins / 16})
		})
	}
}

func BenchmarkDeal(b *testing.B) {
	loads := draw("LN", 4096, 1)
	var balancer balance.Balancer
	b.ReportAllocs()
	for b.Loop() {
		if _, err := balancer.Deal(loads, 256); err != nil {
			b.Fatal(err)
		}
	}
}

func eachCell(b *testing.B, run func(b *testing.B, s size, costs []int64)) {
	for _, s := range grid {
		for _, dist := range dists {
			for _, model := range models {
				b.Run(fmt.Sprintf("%s/%s/%dx%d", dist, model, s.n, s.bins), func(b *testing.B) {
					run(b, s, modelCost(model, draw(dist, s.n, 1)))
				})
			}
		}
	}
}

// benchmarkPartition also reports how far the result is above the
// bound (gap, in millionths) and max/mean.
func benchmarkPartition(b *testing.B, costs []int64, o balance.Options) {
	var balancer balance.Balancer
	for range 3 { // grows the scratch
		if _, err := balancer.Partition(costs, o); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := balancer.Partition(costs, o); err != nil {
			b.Fatal(err)
		}
	}
	bin, err := balancer.Partition(costs, o)
	if err != nil {
		b.Fatal(err)
	}
	q, err := balancer.Evaluate(costs, bin, o)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(1e6*q.Gap(), "gap-ppm")
	b.ReportMetric(q.Imbalance(), "max/mean")
}
