package trainsim

import (
	"slices"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/planner/strategy"
)

// Least is what no dealing of a step's rows to ranks and slots can go below, as parts of the mean rank: the largest rank,
// and the slots where ranks wait for each other in each. costs are those of rows. Ranks have equal numbers of
// pieces, and a slot has one of each rank, so that the costliest pieces need as many slots as there are ranks in
// them, and each slot costs what the first of its pieces does.
func Least(placed *strategy.Result, costs []int64, ranks int) (rank, slot float64, err error) {
	var pieces []int64
	for row, load := range costs {
		_, width := placed.Span(row)
		pieces = append(pieces, slices.Repeat([]int64{load / int64(width)}, width)...)
	}
	slices.Sort(pieces)
	slices.Reverse(pieces)
	slots, in := int64(0), make([]int32, len(pieces))
	for k, piece := range pieces {
		if in[k] = int32(k % ranks); in[k] == 0 {
			slots += piece
		}
	}
	q, err := new(balance.Balancer).Evaluate(pieces, in, balance.Options{Bins: ranks, Equal: true})
	return float64(q.TightBound) / q.Mean(), float64(slots) / q.Mean(), err
}
