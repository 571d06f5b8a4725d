// Package alternate is a strategy of a user's own, for tests: shared by a test and
// by the program that the test runs as processes.
package alternate

import (
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
	g.Distribute("dp", 1)
	g.Cost(cost.Func(func(s cost.Sample) int64 { return s.Tokens * s.Tokens }))
	g.Balance(strategy.Balance{Method: "auto", Level: strategy.Interleaved})
	return g.Plan()
}

// moved gives the samples of a row to the one further on by a number.
func moved(s *strategy.Step) error {
	shape, dp := s.Shape(), s.Tree().Sizes().DP
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
