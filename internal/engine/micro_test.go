package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/engine/schedule"
	"github.com/millrace-data/millrace/internal/engine/simulate"
)

// TestMicrobenchmark runs the microbenchmark of Ray Data's paper through the executor, in the time of a
// synctest bubble, and holds it to 1.06 times what the simulator takes.
func TestMicrobenchmark(t *testing.T) {
	after := func(d time.Duration, n int, out *Output) error {
		time.Sleep(d)
		if err := out.Release(); err != nil {
			return err
		}
		for range n {
			if err := out.Emit(only(simulate.Partition)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, b := range []int64{5, 6, 7, 8, 9, 10, 15, 20, 30, 40, 60, 80, 160, 320} {
		limit := b * simulate.Partition
		virtual := simulate.Run(simulate.Microbenchmark(), simulate.Config{Limit: limit, Pinned: true, Policy: schedule.Decide, Credits: true})
		var took float64
		var peak int64
		synctest.Test(t, func(t *testing.T) {
			e, err := New(Options{Limit: limit, Slots: map[string]schedule.Amount{"cpu": 8 * schedule.Slot, "gpu": 4 * schedule.Slot}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancel(t.Context())
			over := make(chan error)
			go func() { over <- e.Run(ctx) }()
			gpu := map[string]schedule.Amount{"gpu": schedule.Slot}
			p, err := e.Pipeline([]Stage{
				{Name: "load", Needs: oneCPU, Partition: simulate.Partition},
				{Name: "transform", Needs: oneCPU, Partition: simulate.Partition, Process: func(_ context.Context, _ []Partition, out *Output) error { return after(time.Second/2, 1, out) }},
				{Name: "infer", Needs: gpu, Sink: true, Process: func(context.Context, []Partition, *Output) error { time.Sleep(time.Second / 2); return nil }},
			})
			if err != nil {
				t.Fatal(err)
			}
			var work Work
			for range 160 {
				work.Sources = append(work.Sources, Source{Expect: 5 * simulate.Partition, Read: func(_ context.Context, out *Output) error { return after(5*time.Second, 5, out) }})
			}
			began := time.Now()
			if err := p.Run(ctx, work, nothing); err != nil {
				t.Error(err)
			}
			took, peak = time.Since(began).Seconds(), e.Usage().Peak
			end()
			<-over
		})
		t.Logf("%.1f GB: %.1f s, simulated %.1f s", float64(b)/10, took, virtual.Time.Seconds())
		if took > 1.06*virtual.Time.Seconds() || peak > limit {
			t.Errorf("%.1f GB: %.1f s, simulated %.1f s; the ledger held %d of %d bytes", float64(b)/10, took, virtual.Time.Seconds(), peak, limit)
		}
	}
}
