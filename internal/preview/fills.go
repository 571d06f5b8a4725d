package preview

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/strategy"
)

// Fills are the values of batch.fill that a report compares.
var Fills = [...]int{1000, 995, 990, 980, 975, 950, 925, 900, 850}

// fillSteps are the steps that they are compared in: distributions hardly differ
// from step to step, and each takes as many plans as there are fills.
const fillSteps = 2

// nearlyBest is the part by which a fuller row may be slower than the best fill, and be
// preferred: less than a cost model is exact.
const nearlyBest = 0.001

// FillReport is what a value of batch.fill costs and gains.
type FillReport struct {
	Fill    int     `json:"fill"`    // thousandths of a step's tokens, of batch.fill
	Tokens  float64 `json:"tokens"`  // of a step, over its room
	Slowest float64 `json:"slowest"` // rank, over the mean one; in each microbatch where ranks wait for each other there
}

// fillTally adds up the steps that fills are compared in.
type fillTally struct {
	steps  int
	room   float64
	tokens [len(Fills)]float64
	most   [len(Fills)]float64 // of the slowest rank
	total  [len(Fills)]float64 // cost
	ranks  float64
	runner strategy.Runner
	packer balance.Packer
	wide   balance.WidePacker
}

// evens says whether the job's own strategy makes rows cost alike.
func (j *Job) evens() bool {
	for graph, p := range j.spec.Primitives() {
		if graph.Of == dgraph.Text.String() && p.Balance != nil && p.Balance.Evens() {
			return true
		}
	}
	return false
}

// addFills plans the samples of a step again for each fill.
func (t *tally) addFills(s *plan.Step) error {
	f := &t.fills
	if f.steps == fillSteps || !t.job.evens() {
		return nil
	}
	f.steps++
	f.room += float64(s.Shape.Rows) * float64(s.Shape.SequenceLength)
	for i, part := range Fills {
		tokens, m, err := f.plan(t.job, s, part)
		if err != nil {
			return fmt.Errorf("planning step %d with batch.fill %d: %w", s.Step, part, err)
		}
		most := m.Buckets.Max
		if s.Mesh.Sizes().PP > 1 || s.Placed.Width != nil {
			most = m.Lockstep
		}
		f.ranks = float64(m.Buckets.Bins)
		f.tokens[i], f.most[i], f.total[i] = f.tokens[i]+float64(tokens), f.most[i]+float64(most), f.total[i]+float64(m.Buckets.Total)
	}
	return nil
}

// plan plans the first samples of a step, as many as fill a part of its rows.
func (f *fillTally) plan(j *Job, s *plan.Step, part int) (tokens int64, m strategy.Module, err error) {
	shape := strategy.Shape{
		Rows: s.Shape.Rows, SequenceLength: s.Shape.SequenceLength, MicrobatchSize: max(j.config.MicrobatchSize, 1), Packing: true,
		Multiple: j.config.Multiple, Pool: j.config.Pool, Widest: j.config.Widest, Fill: int32(part),
	}
	want, n := int64(shape.Rows)*int64(shape.SequenceLength)*int64(part)/1000, 0
	var lengths []int32
	for sum, multiple := int64(0), max(shape.Multiple, 1); n < s.Buffer.Len() && (sum < want || part == 1000); n++ {
		length := (s.Buffer.Tokens[n] + multiple - 1) / multiple * multiple
		lengths, sum = append(lengths, length), sum+int64(length)
	}
	buffer := *s.Buffer
	buffer.Source, buffer.Seq, buffer.Index, buffer.Tokens = buffer.Source[:n], buffer.Seq[:n], buffer.Index[:n], buffer.Tokens[:n]
	if buffer.Carried = min(buffer.Carried, n); buffer.ImageOffsets != nil {
		buffer.ImageOffsets = buffer.ImageOffsets[:n+1]
		buffer.Patches = buffer.Patches[:buffer.ImageOffsets[n]]
	}
	var rows []int32
	if shape.Widest > 1 {
		rows, _, err = f.wide.Pack(lengths, 0, balance.Wide{Capacity: shape.SequenceLength, Widest: shape.Widest, Units: shape.Rows}, n)
	} else {
		rows, _, err = f.packer.Pack(lengths, 0, shape.SequenceLength, shape.Rows, n)
	}
	if err != nil {
		return 0, m, err
	}
	result, err := f.runner.Run(j.config.Strategy, strategy.Input{
		Number: s.Step, Tree: s.Mesh, Shape: shape, Sources: j.Sources(),
		Draw: func([]uint64) (*dgraph.Buffer, []int32, error) { return &buffer, rows, nil },
	})
	if err != nil {
		return 0, m, err
	}
	for i, row := range result.RowOf {
		if row >= 0 {
			tokens += int64(lengths[i])
		}
	}
	for _, x := range result.Modules {
		if x.Name == dgraph.Text.String() {
			m = x
		}
	}
	return tokens, m, nil
}

// report returns the fills, and the one to take.
func (f *fillTally) report() (all []FillReport, best int) {
	for i, part := range Fills {
		if f.steps == 0 || f.total[i] == 0 || f.tokens[i] == 0 {
			return nil, 0
		}
		all = append(all, FillReport{Fill: part, Tokens: f.tokens[i] / f.room, Slowest: f.most[i] / (f.total[i] / f.ranks)})
	}
	return all, BestFill(all)
}

// BestFill returns the fill to take, 0 of none. A token costs the same at every fill, but
// for chance, so that the slowest rank's time for a token is its part of the mean: the
// fullest of those that are nearly as fast as the fastest is best.
func BestFill(all []FillReport) int {
	if len(all) == 0 {
		return 0
	}
	least := slices.MinFunc(all, func(a, b FillReport) int { return cmp.Compare(a.Slowest, b.Slowest) }).Slowest
	at := slices.IndexFunc(all, func(r FillReport) bool { return r.Slowest <= least*(1+nearlyBest) })
	return all[at].Fill
}

// warnFills says what another fill gains.
func (t *tally) warnFills(warn func(string, ...any)) {
	r := &t.r
	own := t.job.spec.Batch.Fill
	if len(r.Fills) == 0 || own == r.BestFill {
		return
	}
	at := func(fill int) (x FillReport) {
		for _, x = range r.Fills {
			if x.Fill <= fill {
				break
			}
		}
		return x
	}
	now, best := at(max(own, 0)), at(r.BestFill)
	if own == 0 {
		now = r.Fills[0]
	}
	if gain := now.Slowest/best.Slowest - 1; gain > nearlyBest {
		warn("rows that are %.1f %% full let the slowest rank have %.4f of the mean, %.1f %% full ones %.4f: with batch.fill %d a step has %.1f %% fewer tokens, and each takes %.1f %% less of the slowest rank's time",
			100*now.Tokens, now.Slowest, 100*best.Tokens, best.Slowest, best.Fill, 100*(1-best.Tokens/now.Tokens), 100*(1-best.Slowest/now.Slowest))
	}
}
