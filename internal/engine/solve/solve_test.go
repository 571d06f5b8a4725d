package solve_test

import (
	"testing"

	"github.com/millrace-data/millrace/internal/engine/solve"
)

// TestGolden are the answers that can be checked by hand.
func TestGolden(t *testing.T) {
	for _, c := range []struct {
		tasks, consume, slots, buffer, want int
	}{
		{4, 1, 1, 1, 8}, {4, 1, 2, 1, 5}, {4, 1, 3, 1, 5},
		{5, 2, 1, 1, 15}, {5, 2, 2, 1, 11}, {5, 2, 3, 1, 11}, {5, 2, 4, 1, 11}, {5, 2, 4, 4, 5},
	} {
		p := solve.Problem{
			Operators: []solve.Operator{{Ticks: 1, Gives: 1}, {Ticks: c.consume}},
			Sources:   c.tasks, Slots: []int{c.slots}, Buffer: c.buffer, Pinned: true,
		}
		if got := p.Solve(); got.Ticks != c.want || !got.Optimum || got.Bound != c.want {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// TestCut cuts the layers: what is found is then a schedule, not shorter than the
// optimum nor than the bound, and not called the optimum.
func TestCut(t *testing.T) {
	p := solve.Problem{
		Operators: []solve.Operator{{Ticks: 3, Gives: 2}, {Ticks: 1, Gives: 1}, {Ticks: 2, Resource: 1}},
		Sources:   6, Slots: []int{3, 2}, Buffer: 3, Pinned: true,
	}
	exact := p.Solve()
	p.Width = 3
	cut := p.Solve()
	if !exact.Optimum || cut.Optimum || cut.Ticks < exact.Ticks || cut.Bound > exact.Ticks {
		t.Errorf("exact %+v, cut %+v", exact, cut)
	}
}

// TestNone is a problem without a schedule in the time allowed.
func TestNone(t *testing.T) {
	p := solve.Problem{Operators: []solve.Operator{{Ticks: 1, Gives: 1}, {Ticks: 1}}, Sources: 4, Slots: []int{1}, Buffer: 1, Ticks: 5}
	if got := p.Solve(); got.Ticks != 0 || got.Optimum || got.Bound != 8 {
		t.Errorf("%+v", got)
	}
}
