package strategy_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// spoiling is a registered strategy that changes its plan at the end.
func spoiling(t *testing.T, change func(*strategy.Step, *strategy.Result)) strategy.Strategy {
	t.Helper()
	plan, err := strategy.Set{"mine": func(s *strategy.Step) error {
		g := s.Graph(dgraph.Text)
		g.Mix(nil)
		if err := g.Plan(); err != nil {
			return err
		}
		change(s, s.Result())
		return nil
	}}.Named("mine")
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestSpoiledPlans: what a registered strategy changes in its plan after Plan is checked, so that
// no sample is dropped, doubled or in a row that is too full.
func TestSpoiledPlans(t *testing.T) {
	type (
		step   = strategy.Step
		result = strategy.Result
	)
	for _, row := range []struct {
		change func(*step, *result)
		want   string // "": it may
	}{
		{func(*step, *result) {}, ""},
		{func(_ *step, r *result) { r.Rank[0], r.Rank[15] = r.Rank[15], r.Rank[0] }, "rows 0 and 3 both go to rank 3, microbatch 0, position 0; each place has one row"},
		{func(_ *step, r *result) { r.Rank[0], r.Rank[1] = r.Rank[1], r.Rank[0] }, ""},
		{func(_ *step, r *result) { r.RowOf[0], r.RowOf[3] = r.RowOf[3], r.RowOf[0] }, ""},
		{func(_ *step, r *result) { r.RowOf[3] = -1 }, "sample 0:0:3, which belongs to this step, has no row"},
		{func(_ *step, r *result) { r.RowOf = slices.Clone(r.RowOf[1:]) }, "15 samples have a row or -1, and there are 16"},
		{func(_ *step, r *result) { r.RowOf[13] = 14 }, "sample 0:0:14 makes row 14 29 tokens long; it has room for 16"},
		{func(_ *step, r *result) {
			r.Rank[0], r.Microbatch[0], r.Position[0] = r.Rank[1], r.Microbatch[1], r.Position[1]
		}, "rows 0 and 1 both go to rank 1, microbatch 0, position 0; each place has one row"},
		{func(_ *step, r *result) { r.Rank[0] = 99 }, "row 0 goes to rank 99, microbatch 0, position 0; there are 4 ranks of 4 microbatches of 1 rows, counted from 0"},
		{func(_ *step, r *result) { r.Rank[0] = -1 }, "row 0 goes to rank -1, microbatch 0, position 0; there are 4 ranks of 4 microbatches of 1 rows, counted from 0"},
		{func(_ *step, r *result) { r.Position = nil }, "16 rows have a rank, 16 a microbatch, 0 a position, and there are 16 rows"},
		{func(_ *step, r *result) { *r = result{} }, "it changed the shape of the plan, which follows from the batch and the mesh"},
		{func(_ *step, r *result) { r.Encoder = []int32{0} }, "1 images have an encoder or -1, and there are 0"},
		{func(s *step, _ *result) { s.Buffer().Tokens[0]++ }, "it changed the samples of the step, which Buffer returns to be read only"},
		{func(s *step, _ *result) { s.Buffer().Index[0] = 1 }, "it changed the samples of the step, which Buffer returns to be read only"},
	} {
		in := sixteen().input(mesh.Sizes{DP: 4, CP: 1, PP: 1, TP: 1}, 1)
		_, err := new(strategy.Runner).Run(spoiling(t, row.change), in)
		want := row.want
		if want != "" {
			want = `strategy "mine": ` + want
		}
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want || fault.ClassOf(err) != fault.User) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// TestSpoiledWidths: the same, where rows have several widths.
func TestSpoiledWidths(t *testing.T) {
	first := func(r *strategy.Result, width int32) int { return slices.Index(r.Width, width) }
	for want, change := range map[string]func(*strategy.Step, *strategy.Result){
		"": func(*strategy.Step, *strategy.Result) {},
		"row %d is 4 ranks wide, from rank 1 on; a width is a power of two up to 8, and its first rank a multiple of it": func(_ *strategy.Step, r *strategy.Result) {
			r.Rank[first(r, 4)] = 1
		},
		"row %d is 3 ranks wide, from rank 0 on; a width is a power of two up to 8, and its first rank a multiple of it": func(_ *strategy.Step, r *strategy.Result) {
			r.Rank[first(r, 4)], r.Width[first(r, 4)] = 0, 3
		},
		"2 of 640 places of the ranks have no row": func(_ *strategy.Step, r *strategy.Result) { r.Width[first(r, 4)] = 2 },
	} {
		b := drawWide(t, 1, 16*40, 1024, 8)
		var at int
		_, err := new(strategy.Runner).Run(spoiling(t, func(s *strategy.Step, r *strategy.Result) {
			at = first(r, 4)
			change(s, r)
		}), b.input(mesh.Sizes{DP: 8, CP: 2, PP: 1, TP: 2}, 1))
		if want != "" && want[0] == 'r' {
			want = fmt.Sprintf(want, at)
		}
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != `strategy "mine": `+want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// TestOwnErrors: what a registered strategy returns is the user's and names it, unless it says its
// class, or that samples are not known yet.
func TestOwnErrors(t *testing.T) {
	own := errors.New("my own error")
	for _, row := range []struct {
		returned error
		want     string
		class    fault.Class
	}{
		{own, `strategy "mine": my own error`, fault.User},
		{fault.Lostf("gone"), "gone", fault.Lost},
		{strategy.ErrBlocked, strategy.ErrBlocked.Error(), fault.Bug},
	} {
		plan, err := strategy.Set{"mine": func(*strategy.Step) error { return row.returned }}.Named("mine")
		if err != nil {
			t.Fatal(err)
		}
		_, err = new(strategy.Runner).Run(plan, sixteen().input(mesh.Sizes{DP: 4, CP: 1, PP: 1, TP: 1}, 1))
		if !errors.Is(err, row.returned) || err.Error() != row.want || fault.ClassOf(err) != row.class {
			t.Errorf("got %v (%v), want %s", err, fault.ClassOf(err), row.want)
		}
	}
}

// forgetful is a row method that writes over what it is given.
type forgetful struct{}

func (forgetful) Name() string { return "forgetful" }

func (forgetful) Assign(in strategy.RowSamples) ([]int32, error) {
	clear(in.Tokens)
	clear(in.Costs)
	clear(in.Row)
	return in.Row, nil
}

// TestMethodWritesOverInput: the rows of a method are checked by the samples, whatever it does to
// the slices that it got.
func TestMethodWritesOverInput(t *testing.T) {
	in := strategy.RowSamples{Tokens: []int32{5, 5}, Costs: []int64{1, 2}, Row: []int32{0, 1}, Rows: 2, Capacity: 8}
	_, err := in.By(forgetful{})
	if want := `method "forgetful": sample 1 makes row 0 10 tokens long; it has room for 8`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if !slices.Equal(in.Tokens, []int32{5, 5}) || !slices.Equal(in.Costs, []int64{1, 2}) || !slices.Equal(in.Row, []int32{0, 1}) {
		t.Errorf("the method changed %v", in)
	}
}
