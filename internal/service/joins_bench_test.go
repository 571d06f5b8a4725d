package service_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/service"
)

// BenchmarkJoins has all ranks of a job join at once, each with connections of its own, in one
// process with the service.
func BenchmarkJoins(b *testing.B) {
	for _, dp := range []int{64, 256} {
		for _, constructors := range []int{2, 64} {
			b.Run(fmt.Sprintf("ranks=%d/constructors=%d", 16*dp, constructors), func(b *testing.B) { benchmarkJoins(b, dp, constructors) })
		}
	}
}

func benchmarkJoins(b *testing.B, dp, constructors int) {
	spec := fmt.Sprintf("\nbatch: {sequence_length: 512, sequences: 256}\ntopology: {dp: %d, tp: 4, pp: 4}\n", dp)
	r := recipe{"many ranks", mixed + spec, 3, ""}
	opts := setting{loaders: 1, constructors: constructors}.options(b, writeSources(b), r)
	for b.Loop() {
		err := service.Run(b.Context(), opts, func(ctx context.Context, address string) error {
			first, err := client.Open(ctx, address, client.Options{Prefetch: -1}) // the sources are indexed then
			if err != nil {
				return err
			}
			defer first.Close()
			began := time.Now()
			err = joinAll(ctx, address, dp, 4, 4)
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
			c, err := client.Open(ctx, address, client.Options{Rank: rank, Prefetch: -1, Log: slog.New(slog.DiscardHandler)})
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
