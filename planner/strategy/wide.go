package strategy

import (
	"slices"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/planner/dgraph"
)

// widths bounds the widths of rows.
func (s *Shape) widths() balance.Wide {
	return balance.Wide{Capacity: s.SequenceLength, Widest: s.Widest, Units: s.Rows}
}

// widths returns the width of each row, the smallest that holds its samples; nil if
// there is no pool. Rows that no sample is in are the last ones, of width 1.
func (s *Step) widths() []int32 {
	shape := s.in.Shape
	switch {
	case !shape.Pool:
		return nil
	case !shape.wide():
		return slices.Repeat([]int32{1}, shape.Rows)
	}
	tokens, m := make([]int64, shape.Rows), max(shape.Multiple, 1)
	for i, row := range s.rowOf {
		if row >= 0 {
			tokens[row] += int64((s.buf.Tokens[i] + m - 1) / m * m)
		}
	}
	w := shape.widths()
	var widths []int32
	for units, row := 0, 0; units < shape.Rows; row++ {
		width := w.Width(tokens[row])
		widths = append(widths, width)
		units += int(width)
	}
	return widths
}

// tile gives rows of several widths to slots of ranks. costs are those of rows; without
// any, all ranks get the same.
func (s *Step) tile(costs []int64) {
	r := s.result
	if costs == nil {
		costs = make([]int64, len(r.Width))
		for row, width := range r.Width {
			costs[row] = int64(width)
		}
	}
	spans, slots, err := s.runner.scratchOf(dgraph.Text).tiler.Tile(r.Width, costs, r.ranks, r.Microbatches)
	if err != nil {
		s.fail(err)
		return
	}
	order := s.runningOrder(slots, costs)
	for row, span := range spans {
		r.Rank[row], r.Microbatch[row] = span.First, order[slots[row]]
	}
}

// runningOrder returns when each slot runs: with a pipeline small ones at both ends,
// else in their order.
func (s *Step) runningOrder(slots []int32, costs []int64) []int32 {
	when := make([]int32, s.microbatches)
	for i := range when {
		when[i] = int32(i)
	}
	if s.in.Tree.Sizes().PP == 1 {
		return when
	}
	sums := make([]int64, s.microbatches)
	for row, slot := range slots {
		sums[slot] += costs[row]
	}
	for at, slot := range balance.Bitonic(sums) {
		when[slot] = int32(at)
	}
	return when
}

// pieces returns the cost, the rank and the microbatch of each rank's piece of each
// row.
func (r *Result) pieces(costs []int64) (piece []int64, rank, slot []int32) {
	for row, width := range r.Width {
		for k := range width {
			piece = append(piece, (costs[row]+int64(width)-1)/int64(width))
			rank, slot = append(rank, r.Rank[row]+k), append(slot, r.Microbatch[row])
		}
	}
	return piece, rank, slot
}
