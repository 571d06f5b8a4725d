package strategy_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// TestImages: every image of a sample that has a row is encoded once, those of others
// are not, and the encoders' loads are even.
func TestImages(t *testing.T) {
	b := draw(t, 5, 192, 1024, 110, true)
	rows, images := model(t, "quadratic"), model(t, "vit-1b")
	mesh := mesh.Sizes{DP: 4, CP: 2, PP: 2, TP: 1}
	for _, axis := range []struct {
		name      string
		buckets   int
		groupSize int
	}{{"world", 16, 1}, {"world", 16, 4}, {"dp", 4, 0}, {"cp", 8, 1}} {
		r, err := new(strategy.Runner).Run(vision(rows, images, axis.name, axis.groupSize, strategy.Balance{}), b.input(mesh, 2))
		if err != nil {
			t.Fatal(err)
		}
		waiting := 0
		for i, row := range r.RowOf {
			first, end := b.buf.ImagesOf(i)
			for image := first; image < end; image++ {
				to := r.Encoder[image]
				if (to < 0) != (row < 0) || int(to) >= axis.buckets {
					t.Fatalf("%+v: image %d of a sample in row %d goes to %d", axis, image, row, to)
				}
				if to < 0 {
					waiting++
				}
			}
		}
		if len(r.Modules) != 2 || r.Modules[1].Buckets.Imbalance() > 1.01 || r.Encoders.Len() != axis.buckets || waiting == 0 {
			t.Errorf("%+v: %v, %d images wait", axis, r.Modules, waiting)
		}
		if g, err := r.Graph(dgraph.Image, b.buf); err != nil || g.Count()[dgraph.Placed] != len(b.buf.Patches)-waiting {
			t.Errorf("%+v: the graph has %v, %v", axis, g.Count(), err)
		}
	}
}

// TestSideBySide: rows and images that are planned together get what each gets when it
// is planned by itself, and of two errors that of the rows counts.
func TestSideBySide(t *testing.T) {
	b := draw(t, 5, 192, 1024, 110, true)
	in := b.input(mesh.Sizes{DP: 4, CP: 2, PP: 2, TP: 1}, 2)
	rows, images := model(t, "quadratic"), model(t, "vit-1b")
	plan := func(rows, images cost.Model, together bool) (*strategy.Result, error) {
		return new(strategy.Runner).Run(func(s *strategy.Step) error {
			for _, kind := range []dgraph.Kind{dgraph.Text, dgraph.Image} {
				g, axis, model, level := s.Graph(kind), "dp", rows, strategy.Interleaved
				if kind == dgraph.Image {
					axis, model, level = "world", images, strategy.Inter
				} else {
					g.Mix(s.Schedule())
				}
				g.Distribute(axis, 1)
				g.Cost(model)
				g.Balance(strategy.Balance{Level: level})
				if !together {
					g.Plan()
				}
			}
			return s.Graph(dgraph.Text).Plan()
		}, in)
	}
	want, err := plan(rows, images, false)
	if err != nil {
		t.Fatal(err)
	}
	got, err := plan(rows, images, true)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("planned together: %v, by themselves: %v", got.Modules, want.Modules)
	}
	for _, bad := range []struct {
		rows, images cost.Model
		kind         string
	}{{negative{}, images, "text"}, {rows, negative{}, "image"}, {negative{}, negative{}, "text"}} {
		if _, err := plan(bad.rows, bad.images, true); err == nil || !strings.HasPrefix(err.Error(), "strategy: "+bad.kind) {
			t.Errorf("a bad cost of %ss: %v", bad.kind, err)
		}
	}
}

// TestImagesInOrder: without a balance images are dealt in turn, and no rows but
// in order.
func TestImagesInOrder(t *testing.T) {
	b := draw(t, 5, 32, 1024, 80, true)
	r, err := new(strategy.Runner).Run(func(s *strategy.Step) error {
		v := s.Graph(dgraph.Image)
		v.Mix(s.Schedule())
		v.Distribute("world", 0)
		return v.Plan()
	}, b.input(mesh.Sizes{DP: 2, CP: 2, PP: 1, TP: 1}, 1))
	if err != nil {
		t.Fatal(err)
	}
	for image, to := range r.Encoder {
		if int(to) != image%4 {
			t.Errorf("image %d goes to %d", image, to)
		}
	}
	if r.Rank[1] != 1 || r.Microbatch[2] != 1 {
		t.Error("rows are not in order")
	}
}

// recorded remembers into how many bins it was asked to divide.
type recorded struct {
	zigzag
	bins *[]int
}

func (m recorded) Assign(costs []int64, bins int) ([][]int32, error) {
	*m.bins = append(*m.bins, bins)
	return m.zigzag.Assign(costs, bins)
}

// TestGroups: with a group size balancing looks at groups, and then into each.
func TestGroups(t *testing.T) {
	b := draw(t, 6, 48, 512, 90, true)
	m := model(t, "linear(of=patches)")
	for _, tc := range []struct {
		groupSize    int
		rows, images []int
	}{
		{0, []int{12}, []int{24}},
		{1, []int{12}, []int{24}},
		{12, []int{12}, []int{2, 12, 12}},
		{4, []int{3, 4, 4, 4}, []int{6, 4, 4, 4, 4, 4, 4}},
	} {
		var rows, images []int
		_, err := new(strategy.Runner).Run(func(s *strategy.Step) error {
			g := s.Graph(dgraph.Text)
			g.Mix(nil)
			g.Distribute("dp", tc.groupSize)
			g.Cost(m)
			g.Balance(strategy.Balance{Custom: recorded{bins: &rows}})
			v := s.Graph(dgraph.Image)
			v.Distribute("world", tc.groupSize)
			v.Cost(m)
			v.Balance(strategy.Balance{Custom: recorded{bins: &images}})
			return v.Plan()
		}, b.input(mesh.Sizes{DP: 12, CP: 1, PP: 1, TP: 2}, 1))
		if err != nil || !slices.Equal(rows, tc.rows) || !slices.Equal(images, tc.images) {
			t.Errorf("group size %d: rows are divided by %v and images by %v, want %v and %v (%v)", tc.groupSize, rows, images, tc.rows, tc.images, err)
		}
	}
}
