package service_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/service"
)

// BenchmarkJoins has all 4,096 ranks of a job join at once, each with connections of its own,
// in one process with the service.
func BenchmarkJoins(b *testing.B) {
	for _, constructors := range []int{2, 64} {
		b.Run(fmt.Sprintf("constructors=%d", constructors), func(b *testing.B) { benchmarkJoins(b, constructors) })
	}
}

func benchmarkJoins(b *testing.B, constructors int) {
	r := recipe{"many ranks", mixed + "\nbatch: {sequence_length: 512, sequences: 256}\ntopology: {dp: 256, tp: 4, pp: 4}\n", 3, ""}
	opts := setting{loaders: 1, constructors: constructors}.options(b, writeSources(b), r)
	for b.Loop() {
		err := service.Run(b.Context(), opts, func(ctx context.Context, address string) error {
			first, err := client.Open(ctx, address, client.Options{Prefetch: -1}) // the sources are indexed then
			if err != nil {
				return err
			}
			defer first.Close()
			began := time.Now()
			err = joinAll(ctx, address, 256, 4, 4)
			b.ReportMetric(time.Since(began).Seconds(), "s/all")
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func joinAll(ctx context.Context, address string, dp, pp, tp int) (first error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for n := range dp * pp * tp {
		all.Go(func() {
			rank := client.Rank{DP: n / (pp * tp), PP: n / tp % pp, TP: n % tp}
			c, err := client.Open(ctx, address, client.Options{Rank: rank, Prefetch: -1})
			mu.Lock()
			defer mu.Unlock()
			if err != nil && first == nil {
				first = err
			}
			if err == nil {
				context.AfterFunc(ctx, func() { c.Close() })
			}
		})
	}
	all.Wait()
	return first
}
