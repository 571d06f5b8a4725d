// Command plans prints steps that the service's planner plans, as JSON: the lengths of their
// samples, and how even their rows are, for a comparison with other packers and balancers
// on the same samples.
//
// It owns the inputs of that comparison. The core of the planner draws, packs, evens and
// places; this command decides nothing and reads nothing.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"github.com/millrace-data/millrace/bench/internal/trainsim"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// input is a job whose steps are compared.
type input struct {
	Name     string `json:"name"`
	Capacity int32  `json:"capacity"` // tokens of a row
	Rows     int    `json:"rows"`     // of a step, or its units
	Ranks    int    `json:"ranks"`
	Widest   int32  `json:"widest"` // above 1: samples are cut over up to this many ranks
	A        int64  `json:"a"`      // a sample of s tokens costs a*s + s*s
	length   func(*rand.Rand) float64
}

// served is its step.
type served struct {
	input
	Tokens    []int32 `json:"tokens"`    // of the samples in it
	OverRanks float64 `json:"overRanks"` // largest rank over the mean
	OverSlots float64 `json:"overSlots"` // of slots, the largest rank in each, over the mean rank
	LeastRank float64 `json:"leastRank"` // as OverRanks, what these rows forbid, however they are dealt
	LeastSlot float64 `json:"leastSlot"` // as OverSlots, the same
	Fill      int     `json:"fill"`      // batch.fill, as the preflight recommends it for the input
	Full      float64 `json:"full"`      // part of the rows' tokens
	Millis    float64 `json:"millis"`    // for drawing, packing and placing the step
}

func lognormal(median, sigma float64) func(*rand.Rand) float64 {
	return func(r *rand.Rand) float64 { return median * math.Exp(sigma*r.NormFloat64()) }
}

func pareto(alpha, least float64) func(*rand.Rand) float64 {
	return func(r *rand.Rand) float64 { return least * math.Pow(1-r.Float64(), -1/alpha) }
}

// 24576 is the linear part of a 7B layer against its attention.
var inputs = []input{
	{"lognormal, median 600", 8192, 256, 64, 1, 24576, lognormal(600, 1.2)},
	{"Pareto 0.9 from 64", 8192, 256, 64, 1, 24576, pareto(0.9, 64)},
	{"RL: lognormal, median 2000", 8192, 256, 64, 1, 24576, lognormal(2000, 0.8)},
	{"giants: lognormal, median 1500, up to 16 rows", 8192, 256, 16, 16, 0, lognormal(1500, 1.6)},
}

func main() {
	var all []served
	for _, in := range inputs {
		out, err := in.best(1)
		if err != nil {
			fmt.Fprintf(os.Stderr, "plans: %s: %v\n", in.Name, err)
			os.Exit(1)
		}
		all = append(all, *out)
	}
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		fmt.Fprintln(os.Stderr, "plans:", err)
		os.Exit(1)
	}
}

// best is the step that the service makes with the fill that the preflight recommends.
func (in *input) best(seed uint64) (*served, error) {
	var all []preview.FillReport
	steps := map[int]*served{}
	for _, fill := range preview.Fills {
		out, err := in.serve(seed, fill)
		if err != nil {
			return nil, fmt.Errorf("fill %d: %w", fill, err)
		}
		slowest := out.OverRanks
		if in.Widest > 1 {
			slowest = out.OverSlots
		}
		all = append(all, preview.FillReport{Fill: fill, Tokens: out.Full, Slowest: slowest})
		steps[fill] = out
	}
	return steps[preview.BestFill(all)], nil
}

// serve has the planner's core plan the second step, which begins with what the first one carries
// over.
func (in *input) serve(seed uint64, fill int) (*served, error) {
	tree, err := mesh.New(mesh.Sizes{DP: in.Ranks, CP: 1, PP: 1, TP: 1, VPP: 1, EP: 1})
	if err != nil {
		return nil, err
	}
	began := time.Now()
	step, err := trainsim.PlanStep(plan.Config{
		Sources: []plan.Source{{Name: "data", Blocks: 1 << 20, Longest: in.Capacity * in.Widest}}, Schedule: mix.NewSchedule([]mix.Stage{{Weights: []float64{1}}}),
		SequenceLength: in.Capacity, Rows: in.Rows, Packing: true, Pool: in.Widest > 1, Widest: in.Widest, Fill: int32(fill),
		Mesh: tree, Strategy: in.strategy, Ahead: 2, Window: 1 << 16,
	}, 1, func(want plan.Want) plan.BlockRead { return in.block(seed, want) })
	if err != nil {
		return nil, err
	}
	return in.of(step, fill, time.Since(began)/2)
}

func (in *input) block(seed uint64, want plan.Want) plan.BlockRead {
	r := rand.New(rand.NewPCG(seed, uint64(want.Seq)))
	out := plan.BlockRead{Source: want.Source, Seq: want.Seq}
	for range 4096 {
		most := float64(in.Capacity * in.Widest)
		out.Lengths = append(out.Lengths, int32(max(min(in.length(r), most), 1)))
	}
	return out
}

func (in *input) strategy(s *strategy.Step) error {
	g := s.Graph(dgraph.Text)
	g.Mix(s.Schedule())
	g.Distribute(s.RowAxis(), 1)
	g.Cost(cost.Func(func(s cost.Sample) int64 { return in.A*s.Tokens + s.Tokens*s.Tokens }))
	g.Balance(strategy.Balance{Level: strategy.Interleaved})
	return g.Plan()
}

func (in *input) of(step *plan.Step, fill int, took time.Duration) (out *served, err error) {
	m := step.Placed.Modules[0]
	out = &served{input: *in, Fill: fill, Millis: took.Seconds() * 1000}
	loads := make([]int64, len(step.Placed.Rank))
	for i, row := range step.Placed.RowOf {
		if row >= 0 {
			n := step.Buffer.Tokens[i]
			out.Tokens = append(out.Tokens, n)
			loads[row] += in.A*int64(n) + int64(n)*int64(n)
		}
	}
	out.OverRanks, out.OverSlots = m.Buckets.Imbalance(), float64(m.Lockstep)/m.Buckets.Mean()
	out.Full = float64(step.Filled) / float64(int64(in.Capacity)*int64(in.Rows))
	out.LeastRank, out.LeastSlot, err = trainsim.Least(step.Placed, loads, in.Ranks)
	return out, err
}
