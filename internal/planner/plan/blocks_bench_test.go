package plan_test

import (
	"fmt"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// BenchmarkSmallBlocks plans steps that take several whole epochs of each of 306
// sources: hundreds of blocks are read for every step.
func BenchmarkSmallBlocks(b *testing.B) {
	cfg := plan.Config{SequenceLength: 2048, Rows: 32, Packing: true, Ahead: 4, Window: 256}
	weights := make([]float64, 306)
	for i := range weights {
		weights[i] = 1
		cfg.Sources = append(cfg.Sources, plan.Source{Name: fmt.Sprint(i), Blocks: 1})
	}
	cfg.Schedule = mix.NewSchedule([]mix.Stage{{Weights: weights}})
	core := plan.New(cfg)
	effects := core.Start()
	blocks, planned := 0, int64(0)
	for b.Loop() {
		for until := planned + 1; planned < until; {
			e := effects[0]
			effects = effects[1:]
			switch e := e.(type) {
			case plan.Want:
				blocks++
				effects = append(effects, core.Apply(plan.BlockRead{Source: e.Source, Seq: e.Seq, Lengths: []int32{30, 50, 40}})...)
			case plan.Publish:
				planned++
				effects = append(effects, core.Apply(plan.Acked{Step: planned})...)
			}
		}
	}
	b.ReportMetric(float64(blocks)/float64(b.N), "blocks/op")
}
