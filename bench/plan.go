package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// planCase is a job for the planner's core alone: no service, no reading.
type planCase struct {
	name    string
	sources int
	rows    int // of a step, with planLength tokens each
	mean    int // tokens of a sample
	steps   int
	block   int // samples
}

const planLength = 8192

// About 2048 samples of all sources a step, then about 300,000.
var planCases = []planCase{
	{"306 sources, about 2,000 samples a step", 306, 256, 1000, 200, 1000},
	{"306 sources, about 300,000 samples a step", 306, 4096, 110, 7, 20000},
}

// benchPlan measures the core's time for a step when all blocks it requests are
// known at once: mix, packing and the digests of rows.
func benchPlan(_ context.Context, cfg *config) error {
	cfg.report.title("Plan of a step: the pure core, one goroutine")
	var results []result
	for _, c := range planCases {
		seconds, samples := c.run(max(c.steps, cfg.runs))
		ms := result{Scenario: "plan", Name: c.name, Unit: "ms a step", Less: true}
		for i, s := range seconds {
			ms.add(sample{s * 1000, map[string]float64{"samples": float64(samples[i])}})
		}
		slices.Sort(seconds)
		cfg.report.note("%s: p50 %.2f ms, p99 %.2f ms over %d steps", c.name, 1000*quantile(seconds, 0.5), 1000*quantile(seconds, 0.99), len(seconds))
		results = append(results, ms)
	}
	cfg.report.note("")
	return cfg.report.table(results, "samples")
}

// quantile returns the smallest value that at least q of the sorted ones reach.
func quantile(sorted []float64, q float64) float64 {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// run plans steps, each acknowledged before the next, and returns the seconds
// and the samples of each.
func (c planCase) run(steps int) (seconds []float64, samples []int) {
	weights := make([]float64, c.sources)
	config := plan.Config{SequenceLength: planLength, Rows: c.rows, Packing: true, Ahead: 1, Window: c.block}
	for i := range weights {
		weights[i] = 1 + float64(i%7)
		config.Sources = append(config.Sources, plan.Source{Name: "source", Blocks: 1 << 20})
	}
	config.Schedule = mix.NewSchedule([]mix.Stage{{Weights: weights}})
	core := plan.New(config)
	digests := make([][32]byte, c.rows)
	numbers := make([]uint32, c.rows)
	for i := range numbers {
		numbers[i] = uint32(i)
	}
	effects := core.Start()
	for len(seconds) < steps {
		begin := time.Now()
		planned, inside := settle(core, effects, c.lengths)
		effects = core.Apply(plan.Assembled{Step: planned.Step, Rows: numbers, Digests: digests})
		effects = append(effects, core.Apply(plan.Acked{Step: planned.Step + 1})...)
		seconds = append(seconds, (time.Since(begin) - inside).Seconds())
		samples = append(samples, planned.Count())
	}
	return seconds, samples
}

// settle answers the core's wants until a step is planned, and says how long
// making the answers took.
func settle(core *plan.Core, effects []plan.Effect, lengths func(plan.Want) []int32) (*plan.Step, time.Duration) {
	var planned *plan.Step
	var making time.Duration
	for queue := effects; len(queue) > 0; queue = queue[1:] {
		switch e := queue[0].(type) {
		case plan.Publish:
			planned = e.Step
		case plan.Want:
			begin := time.Now()
			block := plan.BlockRead{Source: e.Source, Seq: e.Seq, Lengths: lengths(e)}
			making += time.Since(begin)
			queue = append(queue, core.Apply(block)...)
		case plan.Fail:
			panic(e.Err) // the bench's own job is wrong
		}
	}
	return planned, making
}

// lengths are the samples of a block: many short ones, few long ones.
func (c planCase) lengths(w plan.Want) []int32 {
	rng := rand.New(rand.NewPCG(uint64(w.Source), uint64(w.Seq)))
	lengths := make([]int32, c.block)
	for i := range lengths {
		u := rng.ExpFloat64()
		lengths[i] = int32(min(max(float64(c.mean)*u, 1), planLength))
	}
	return lengths
}
