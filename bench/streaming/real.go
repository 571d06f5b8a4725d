package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/millrace-data/millrace/internal/engine"
	"github.com/millrace-data/millrace/internal/engine/schedule"
	"github.com/millrace-data/millrace/internal/engine/simulate"
)

// scale is how much smaller and faster the real run is than the virtual one: partitions of 5 MB,
// tasks of 250, 25 and 25 ms.
const scale = 20

// block is a partition of which only the size is real.
type block int64

func (b block) Bytes() int64 { return int64(b) }

// inRealTime runs the microbenchmark through the executor, at every limit of the tables, beside virtual time.
func inRealTime() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "GB\tvirtual, s\treal x 20, s\treal / virtual\tpeak of the ledger / limit\t")
	for _, b := range limits {
		virtual := run(simulate.Microbenchmark(), b, true, contender{policy: func() schedule.Policy { return schedule.Decide }, ours: true})
		took, peak, err := execute(b * simulate.Partition / scale)
		if err != nil {
			return err
		}
		scaled := scale * took.Seconds()
		fmt.Fprintf(w, "%.1f\t%.1f\t%.1f\t%.3f\t%.2f\t\n", float64(b)/10, virtual.Time.Seconds(), scaled, scaled/virtual.Time.Seconds(), float64(peak)/float64(b*simulate.Partition/scale))
	}
	return w.Flush()
}

// execute runs 160 loads with their transforms and inferences within a limit of bytes.
func execute(limit int64) (time.Duration, int64, error) {
	ex, err := engine.New(engine.Options{Limit: limit, Slots: map[string]schedule.Amount{"cpu": 8 * schedule.Slot, "gpu": 4 * schedule.Slot}})
	if err != nil {
		return 0, 0, err
	}
	ctx, end := context.WithCancel(context.Background())
	over := make(chan error)
	go func() { over <- ex.Run(ctx) }()
	defer func() { end(); <-over }()
	p, err := ex.Pipeline(stages())
	if err != nil {
		return 0, 0, err
	}
	load := engine.Source{Expect: 5 * simulate.Partition / scale, Read: func(_ context.Context, out *engine.Output) error {
		return giveAfter(5*time.Second, 5, out)
	}}
	var work engine.Work
	for range 160 {
		work.Sources = append(work.Sources, load)
	}
	began := time.Now()
	err = p.Run(ctx, work, func(int, engine.Partition) error { return nil })
	return time.Since(began), ex.Usage().Peak, err
}

func stages() []engine.Stage {
	cpu, gpu := map[string]schedule.Amount{"cpu": schedule.Slot}, map[string]schedule.Amount{"gpu": schedule.Slot}
	return []engine.Stage{
		{Name: "load", Needs: cpu, Partition: simulate.Partition / scale},
		{Name: "transform", Needs: cpu, Partition: simulate.Partition / scale, Process: func(_ context.Context, _ []engine.Partition, out *engine.Output) error {
			return giveAfter(time.Second/2, 1, out)
		}},
		{Name: "infer", Needs: gpu, Sink: true, Process: func(_ context.Context, _ []engine.Partition, out *engine.Output) error {
			return giveAfter(time.Second/2, 0, out)
		}},
	}
}

// giveAfter works for a time, and gives partitions in the place of its input.
func giveAfter(d time.Duration, n int, out *engine.Output) error {
	time.Sleep(d / scale)
	if err := out.Release(); err != nil {
		return err
	}
	for range n {
		if err := out.Emit(block(simulate.Partition / scale)); err != nil {
			return err
		}
	}
	return nil
}
