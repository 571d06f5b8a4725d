package strategy

import (
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/dgraph"
)

// PlanRaw places the rows of a step as its caller says: plan_raw. Mix has to be
// called before and Plan after it. rowOf has an entry for each sample, the others
// for each row; they have the meaning they have in Result. They are checked and
// copied: the samples that Mix placed, and no others, have a row; no row has more
// tokens than the sequence length; every position of every microbatch of every
// rank has one row.
//
// A rowOf that depends on the mesh makes the global batch depend on it.
func PlanRaw(s *Step, rowOf, rank, microbatch, position []int32) error {
	switch {
	case s.err != nil:
		return s.err
	case s.buf == nil:
		s.fail(fault.Userf("strategy: plan_raw: the step has no samples; call Mix on a graph first"))
		return s.err
	}
	g := s.Graph(dgraph.Text)
	if s.in.Shape.wide() {
		g.fail("plan_raw", "it places rows of one width, and batch.context_split makes several; leave one of the two out")
		return s.err
	}
	if g.balanced {
		g.fail("plan_raw", "Balance is to place the rows; leave one of the two out")
		return s.err
	}
	if err := s.checkRows(rowOf); err != nil {
		s.fail(fault.Userf("strategy: plan_raw: %w", err))
		return s.err
	}
	if err := s.checkPlaces(rank, microbatch, position); err != nil {
		s.fail(fault.Userf("strategy: plan_raw: %w", err))
		return s.err
	}
	r := s.result
	r.RowOf = slices.Clone(rowOf)
	copy(r.Rank, rank)
	copy(r.Microbatch, microbatch)
	copy(r.Position, position)
	g.raw = true
	return nil
}

// checkRows checks a row for each sample.
func (s *Step) checkRows(rowOf []int32) error {
	if len(rowOf) != len(s.rowOf) {
		return fmt.Errorf("%d samples have a row or -1, and there are %d", len(rowOf), len(s.rowOf))
	}
	tokens := make([]int64, s.in.Shape.Rows)
	count := make([]int32, s.in.Shape.Rows)
	for i, row := range rowOf {
		switch {
		case row < -1 || int(row) >= len(tokens):
			return fmt.Errorf("sample %v goes to row %d; rows are 0 to %d", s.buf.Ref(i), row, len(tokens)-1)
		case row < 0 && s.rowOf[i] >= 0:
			return fmt.Errorf("sample %v, which belongs to this step, has no row", s.buf.Ref(i))
		case row >= 0 && s.rowOf[i] < 0:
			return fmt.Errorf("sample %v, which waits for the next step, goes to row %d; give it -1", s.buf.Ref(i), row)
		case row < 0:
			continue
		}
		count[row]++
		if tokens[row] += int64(s.buf.Tokens[i]); tokens[row] > int64(s.in.Shape.SequenceLength) {
			return fmt.Errorf("sample %v makes row %d %d tokens long; it has room for %d", s.buf.Ref(i), row, tokens[row], s.in.Shape.SequenceLength)
		}
		if count[row] > 1 && !s.in.Shape.Packing {
			return fmt.Errorf("sample %v is the second of row %d; without packing a row has one", s.buf.Ref(i), row)
		}
	}
	return nil
}

// checkPlaces checks a place for each row.
func (s *Step) checkPlaces(rank, microbatch, position []int32) error {
	rows, mbs, dp := s.in.Shape.Rows, s.in.Shape.MicrobatchSize, s.ranks()
	if len(rank) != rows || len(microbatch) != rows || len(position) != rows {
		return fmt.Errorf("%d rows have a rank, %d a microbatch, %d a position, and there are %d rows", len(rank), len(microbatch), len(position), rows)
	}
	row := make([]int32, rows) // of each place, plus 1
	for i := range rank {
		d, m, p := int(rank[i]), int(microbatch[i]), int(position[i])
		if d < 0 || d >= dp || m < 0 || m >= s.microbatches || p < 0 || p >= mbs {
			return fmt.Errorf("row %d goes to rank %d, microbatch %d, position %d; there are %d ranks of %d microbatches of %d rows, counted from 0",
				i, d, m, p, dp, s.microbatches, mbs)
		}
		at := (d*s.microbatches+m)*mbs + p
		if row[at] > 0 {
			return fmt.Errorf("rows %d and %d both go to rank %d, microbatch %d, position %d; each place has one row", row[at]-1, i, d, m, p)
		}
		row[at] = int32(i) + 1
	}
	return nil
}
