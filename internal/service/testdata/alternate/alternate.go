// Package alternate is a strategy of a user's own, for tests: shared by a test and
// by the program that the test runs as processes.
package alternate

import (
	"cmp"
	"slices"

	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/strategy"
)

// Plan does another thing in each of three steps: it draws by the schedule and
// evens rows by a cost of its own, draws by shares of its own, or moves all rows
// on by the number of DP ranks. It is for jobs of three sources.
func Plan(s *strategy.Step) error {
	g := s.Graph(dgraph.Text)
	if s.Number()%3 == 1 {
		g.Mix(strategy.Shares{1, 3, 2})
	} else {
		g.Mix(s.Schedule())
	}
	if s.Number()%3 == 2 {
		if err := moved(s); err != nil {
			return err
		}
		return g.Plan()
	}
	g.Distribute(s.RowAxis(), 1)
	g.Cost(cost.Func(func(s cost.Sample) int64 { return s.Tokens * s.Tokens }))
	g.Balance(strategy.Balance{Method: "auto", Level: strategy.Interleaved})
	return g.Plan()
}

// moved gives the samples of a row to the one further on by a number.
func moved(s *strategy.Step) error {
	shape, dp := s.Shape(), s.Tree().Sizes().DP
	if s.RowAxis() == "cp" {
		dp *= s.Tree().Sizes().CP
	}
	rowOf := make([]int32, len(s.RowOf()))
	for i, row := range s.RowOf() {
		if rowOf[i] = -1; row >= 0 {
			rowOf[i] = (row + int32(dp)) % int32(shape.Rows)
		}
	}
	var rank, microbatch, position []int32
	for row := range shape.Rows {
		slot := row / shape.MicrobatchSize
		rank = append(rank, int32(slot%dp))
		microbatch = append(microbatch, int32(slot/dp))
		position = append(position, int32(row%shape.MicrobatchSize))
	}
	return strategy.PlanRaw(s, rowOf, rank, microbatch, position)
}

// LongestLast is a row method: the samples of each row go to the row whose place by cost, from
// the end, is that of the row. The costs decide what rows hold.
type LongestLast struct{}

// Name returns the name that job specs give it.
func (LongestLast) Name() string { return "longest-last" }

// Assign returns the row of each sample.
func (LongestLast) Assign(in strategy.RowSamples) ([]int32, error) {
	costs, order := make([]int64, in.Rows), make([]int32, in.Rows)
	for i, row := range in.Row {
		costs[row] += in.Costs[i]
	}
	for row := range order {
		order[row] = int32(row)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(costs[a], costs[b]) })
	to := make([]int32, in.Rows)
	for at, row := range order {
		to[row] = int32(at)
	}
	out := make([]int32, len(in.Row))
	for i, row := range in.Row {
		out[i] = to[row]
	}
	return out, nil
}
