package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"
)

// The paced ranks of the scenario gc.
const (
	gcPace  = 100 * time.Millisecond
	gcSteps = 300
)

// gcSettings of GOGC are compared. All have the memory limit that the service sets itself.
var gcSettings = []string{"50", "100", "200", "400"}

// Names of the further measurements.
const (
	waitMedian = "p50 ms"
	waitP99    = "p99 ms"
	waitMost   = "most ms"
	waitShare  = "% of the time waited"
	peakMemory = "peak MiB"
)

// benchGC measures how long paced ranks wait for a batch that is prefetched, by how often the service's garbage collector
// runs: 8 ranks of tokenized Parquet that take 100 ms for a step.
func benchGC(ctx context.Context, cfg *config) error {
	dir, err := writePlainTokens(ctx, cfg)
	if err != nil {
		return err
	}
	e, err := newEndToEnd(ctx, cfg, "gc", dir, "input_ids", "tokens: input_ids")
	if err != nil {
		return err
	}
	results := make([]result, len(gcSettings))
	for range cfg.runs {
		for i, setting := range gcSettings {
			s, err := e.paced(ctx, setting)
			if err != nil {
				return fmt.Errorf("GOGC=%s: %w", setting, err)
			}
			results[i].Scenario, results[i].Name, results[i].Unit, results[i].Less = "gc", "GOGC="+setting, "p99.9 of a fetch, ms", true
			results[i].add(s)
		}
	}
	cfg.report.title("Garbage collection of the service, and how long ranks wait that take %v for a step", gcPace)
	return cfg.report.table(results, waitMedian, waitP99, waitMost, waitShare, serviceCPU, peakMemory)
}

// paced measures paced ranks of a service with a setting of GOGC.
func (e *endToEnd) paced(ctx context.Context, setting string) (sample, error) {
	if err := os.Setenv("GOGC", setting); err != nil {
		return sample{}, err
	}
	service, err := start(ctx, "serve", serveArgs{Spec: e.spec})
	if err = cmp.Or(err, os.Unsetenv("GOGC")); err != nil {
		return sample{}, err
	}
	defer service.stop()
	a := consumeArgs{Spec: e.spec, Warm: warmSteps / 2, Steps: gcSteps, Service: service.pid(), Pace: gcPace}
	if err := service.receive(&a.Address); err != nil {
		return sample{}, err
	}
	ranks, err := start(ctx, "consume", a)
	if err != nil {
		return sample{}, err
	}
	defer ranks.stop()
	var got consumed
	if err := ranks.receive(&got); err != nil {
		return sample{}, err
	}
	m, err := memoryOf(service.pid())
	if err != nil {
		return sample{}, err
	}
	slices.Sort(got.Waits)
	waited := 0.0
	for _, ms := range got.Waits {
		waited += ms
	}
	return sample{quantile(got.Waits, 0.999), map[string]float64{
		waitMedian: quantile(got.Waits, 0.5), waitP99: quantile(got.Waits, 0.99), waitMost: slices.Max(got.Waits), serviceCPU: got.ServiceCPU, peakMemory: float64(m.Peak) / (1 << 20),
		waitShare: 100 * waited / float64(len(got.Waits)) * gcSteps / (1000 * got.Seconds),
	}}, nil
}
