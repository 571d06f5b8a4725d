package strategy_test

import (
	"slices"
	"testing"

	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// noting is zigzag, and notes how many bins it divided items over.
type noting struct {
	zigzag
	bins *[]int
}

func (n noting) Assign(costs []int64, bins int) ([][]int32, error) {
	*n.bins = append(*n.bins, bins)
	return n.zigzag.Assign(costs, bins)
}

// TestGroupSizes: groups have the size that was asked for and the last one has what is left, also where as many groups could be
// equal; and all ranks have equally many rows.
func TestGroupSizes(t *testing.T) {
	for _, x := range []struct {
		ranks, size int
		want        []int // over groups, in units that all groups have a multiple of, then inside of each
	}{
		{9, 4, []int{9, 4, 4, 1}},
		{10, 4, []int{5, 4, 4, 2}},
		{4, 3, []int{4, 3, 1}},
		{16, 5, []int{16, 5, 5, 5, 1}},
		{12, 4, []int{3, 4, 4, 4}},
		{7, 9, []int{7}},
		{7, 1, []int{7}},
	} {
		var bins []int
		r, err := new(strategy.Runner).Run(func(s *strategy.Step) error {
			g := s.Graph(dgraph.Text)
			g.Mix(s.Schedule())
			g.Distribute("dp", x.size, mesh.SmallerLast)
			g.Cost(cost.Func(func(s cost.Sample) int64 { return s.Tokens * s.Tokens }))
			g.Balance(strategy.Balance{Level: strategy.Inter, Custom: noting{bins: &bins}})
			return g.Plan()
		}, draw(t, 7, x.ranks*8, 1024, 96, true).input(mesh.Sizes{DP: x.ranks, CP: 1, PP: 1, TP: 1}, 1))
		if err != nil {
			t.Fatalf("groups of %d of %d: %v", x.size, x.ranks, err)
		}
		rows := make([]int, x.ranks)
		for _, rank := range r.Rank {
			rows[rank]++
		}
		if !slices.Equal(bins, x.want) || slices.Min(rows) != 8 || slices.Max(rows) != 8 {
			t.Errorf("groups of %d of %d: items were divided over %v, want %v; rows %v", x.size, x.ranks, bins, x.want, rows)
		}
	}
}
