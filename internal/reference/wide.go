package reference

import (
	"math"
	"slices"

	"github.com/millrace-data/millrace/balance"
)

// wide bounds rows of several widths (batch.context_split).
func (r *reader) wide() balance.Wide {
	return balance.Wide{Capacity: int32(r.length), Widest: int32(r.job.Batch.ContextSplit), Units: r.seats}
}

// intoRows returns the row of each of the first n samples of the pool, -1 for those
// that are carried over.
func (r *reader) intoRows(lengths []int32) (rows []int32, n int, err error) {
	if r.job.Batch.ContextSplit > 0 {
		return new(balance.WidePacker).Pack(lengths, r.first, r.wide(), carry)
	}
	return new(balance.Packer).Pack(lengths, r.first, int32(r.length), r.seats, carry)
}

// count counts the rows of a step: fewer than seats if some take several.
func (r *reader) count(bins []int32) int {
	switch {
	case r.job.Batch.ContextSplit == 0:
		return r.seats
	case r.widths != nil:
		return len(r.widths)
	}
	tokens := make([]int64, r.seats)
	for k, n := range r.lengths() {
		if bins[k] >= 0 {
			tokens[bins[k]] += int64(n)
		}
	}
	rows := 0
	for units := 0; units < r.seats; rows++ {
		units += int(r.wide().Width(tokens[rows]))
	}
	return rows
}

// sortCarried puts the longest first: a row that one of them opens can still be
// filled, and none is carried for long. Samples that are longer than a row come before
// them, as they were drawn.
func (r *reader) sortCarried() {
	urgency := func(d drawn) int {
		if r.job.Batch.ContextSplit > 0 && r.job.RowLength(len(d.tokens)) > r.length {
			return math.MaxInt
		}
		return len(d.tokens)
	}
	slices.SortStableFunc(r.carried, func(a, b drawn) int { return urgency(b) - urgency(a) })
}
