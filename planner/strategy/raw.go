package strategy

import (
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
	if _, err := s.checkRows(rowOf, s.rowOf, nil); err != nil {
		s.fail(fault.Userf("strategy: plan_raw: %w", err))
		return s.err
	}
	if err := s.checkPlaces(&Result{Rank: rank, Microbatch: microbatch, Position: position}); err != nil {
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
