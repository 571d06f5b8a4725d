package strategy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

type panicking struct{ zigzag }

func (panicking) Assign(costs []int64, bins int) ([][]int32, error) {
	return make([][]int32, bins)[bins : bins+1], nil
}

// TestPanics: a panic in what a user wrote, wherever it is called, is an error of the
// step that names the strategy and the line.
func TestPanics(t *testing.T) {
	dear := cost.Func(func(s cost.Sample) int64 { panic("too dear") })
	balanced := func(rows, images cost.Model, b strategy.Balance) strategy.Strategy {
		return func(s *strategy.Step) error {
			g, v := s.Graph(dgraph.Text), s.Graph(dgraph.Image)
			g.Mix(nil)
			g.Distribute("dp", 1)
			g.Cost(rows)
			g.Balance(b)
			v.Distribute("world", 1)
			v.Cost(images)
			v.Balance(strategy.Balance{})
			return g.Plan()
		}
	}
	linear := model(t, "linear")
	in := draw(t, 3, 16, 200, 90, true).input(mesh.Sizes{DP: 4, CP: 1, PP: 1, TP: 1}, 1)
	for name, row := range map[string]struct {
		plan strategy.Strategy
		want string
	}{
		"panic in itself":      {func(*strategy.Step) error { panic("oh") }, "oh"},
		"panic in a method":    {balanced(linear, linear, strategy.Balance{Custom: panicking{}}), "slice bounds out of range"},
		"panic in a row cost":  {balanced(dear, linear, strategy.Balance{}), "too dear"},
		"panic in image costs": {balanced(linear, dear, strategy.Balance{}), "too dear"},
		"panic in both costs":  {balanced(dear, dear, strategy.Balance{}), "too dear"},
	} {
		plan, err := strategy.Set{name: row.plan}.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = new(strategy.Runner).Run(plan, in)
		if err == nil || fault.ClassOf(err) != fault.User {
			t.Fatalf("%s: got %v", name, err)
		}
		for _, part := range []string{`strategy "` + name + `" panicked: `, row.want, "(panic_test.go:"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("got  %v\nwant %s", err, part)
			}
		}
	}
}

func TestShares(t *testing.T) {
	given := strategy.Shares{3, 1}
	if all, err := given.Of(4); err != nil || !slices.Equal(all, strategy.Shares{3, 1, 0, 0}) {
		t.Errorf("got %v, %v", all, err)
	}
	_, err := given.Of(1)
	if want := "strategy: mix: 2 shares are given, and there are 1 sources; give one for each"; err == nil || err.Error() != want || fault.ClassOf(err) != fault.User {
		t.Errorf("got %v, want %s", err, want)
	}
}
