package strategy_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// TestRowsAtCP: every rank of DP x CP has rows of its own, as many as the others, and
// constructors get those of the CP ranks of their DP ranks. What rows hold is what it is
// at dp.
func TestRowsAtCP(t *testing.T) {
	sizes, quadratic := mesh.Sizes{DP: 3, CP: 4, PP: 1, TP: 2}, model(t, "quadratic(a=500, b=1)")
	for _, level := range []strategy.Level{strategy.Inter, strategy.Intra, strategy.Interleaved, strategy.KeepOrder} {
		plan := func(axis string) *strategy.Result {
			b := draw(t, 11, 96, 1024, 97, true)
			b.shape.Pool = axis == "cp"
			r, err := new(strategy.Runner).Run(func(s *strategy.Step) error {
				g := s.Graph(dgraph.Text)
				g.Mix(s.Schedule())
				g.Distribute(axis, 1)
				g.Cost(quadratic)
				g.Balance(strategy.Balance{Level: level})
				return g.Plan()
			}, b.input(sizes, 2))
			if err != nil {
				t.Fatalf("level %v at %s: %v", level, axis, err)
			}
			if axis == "cp" {
				checkPool(t, r, b)
			}
			return r
		}
		at := map[string]*strategy.Result{"dp": plan("dp"), "cp": plan("cp")}
		if !slices.Equal(at["dp"].RowOf, at["cp"].RowOf) {
			t.Errorf("level %v: rows hold other samples at cp than at dp", level)
		}
		if m := at["cp"].Modules[0]; m.Axis != "cp" || m.Buckets.Bins != 12 || level == strategy.Interleaved && m.Buckets.Gap() > 0.001 {
			t.Errorf("level %v: %v", level, m)
		}
	}
}

func checkPool(t *testing.T, r *strategy.Result, b batch) {
	t.Helper()
	rows := make([]int, 12)
	for row := range r.Rank {
		first, width := r.Span(row)
		if width != 1 {
			t.Fatalf("row %d is shared by %d ranks", row, width)
		}
		rows[first]++
	}
	if r.Ranks() != 12 || r.Microbatches != 4 || slices.Min(rows) != 8 || slices.Max(rows) != 8 {
		t.Fatalf("%d ranks of %d microbatches have %v rows", r.Ranks(), r.Microbatches, rows)
	}
	p := r.Part([]uint32{1})
	for k, rank := range p.Rank {
		if rank < 4 || rank > 7 || p.Width[k] != 1 {
			t.Fatalf("the constructor of DP rank 1 gets row %d of rank %d, width %d", p.Rows[k], rank, p.Width[k])
		}
	}
	if len(p.Rows) != 32 {
		t.Fatalf("the constructor of DP rank 1 gets %d rows; want 32", len(p.Rows))
	}
}

// TestRowsAtCPNeedsTheSpec: the error of a strategy that distributes rows elsewhere than its job
// says what to write.
func TestRowsAtCPNeedsTheSpec(t *testing.T) {
	b := draw(t, 11, 96, 1024, 97, true)
	for pool, axis := range map[bool]string{true: "dp", false: "cp"} {
		b.shape.Pool = pool
		_, err := new(strategy.Runner).Run(overAxis(axis, 1), b.input(mesh.Sizes{DP: 3, CP: 4, PP: 1, TP: 1}, 1))
		if err == nil || !strings.Contains(err.Error(), "distribute: cp") {
			t.Errorf("rows at %s, pool %v: %v", axis, pool, err)
		}
	}
}

func overAxis(axis string, groupSize int, last ...mesh.LastGroup) strategy.Strategy {
	return func(s *strategy.Step) error {
		g := s.Graph(dgraph.Text)
		g.Mix(s.Schedule())
		g.Distribute(axis, groupSize, last...)
		g.Cost(cost.Func(func(s cost.Sample) int64 { return s.Tokens * s.Tokens }))
		g.Balance(strategy.Balance{})
		return g.Plan()
	}
}

// TestSmallerLastGroup: with groups of 3, 3 and 1 of 7 ranks all ranks have equally many rows
// and like work, by every method, and so have encoders; without the word it is an error.
func TestSmallerLastGroup(t *testing.T) {
	squares := cost.Func(func(s cost.Sample) int64 { return s.Tokens*s.Tokens + s.Patches*s.Patches })
	for _, b := range []strategy.Balance{{}, {Method: "lpt"}, {Method: "kk"}, {Custom: zigzag{}}} {
		for size := 2; size < 9; size++ {
			step := draw(t, uint64(size), 7*16, 1024, 96, true)
			r, err := new(strategy.Runner).Run(func(s *strategy.Step) error {
				g := s.Graph(dgraph.Text)
				g.Mix(s.Schedule())
				g.Distribute("dp", size, mesh.SmallerLast)
				g.Cost(squares)
				g.Balance(b)
				v := s.Graph(dgraph.Image)
				v.Distribute("world", size, mesh.SmallerLast)
				v.Cost(squares)
				v.Balance(strategy.Balance{Method: b.Method})
				return v.Plan()
			}, step.input(mesh.Sizes{DP: 7, CP: 1, PP: 1, TP: 1}, 1))
			if err != nil {
				t.Fatalf("groups of %d, %+v: %v", size, b, err)
			}
			if groups := (7 + size - 1) / size; r.Encoders.Groups() != groups {
				t.Errorf("groups of %d: %d groups of encoders, want %d", size, r.Encoders.Groups(), groups)
			}
			rows := make([]int, 7)
			for _, rank := range r.Rank {
				rows[rank]++
			}
			if slices.Min(rows) != 16 || slices.Max(rows) != 16 || b.Custom == nil && r.Modules[0].Buckets.Gap() > 0.02 || r.Modules[1].Buckets.Gap() > 0.001 {
				t.Errorf("groups of %d, %+v: %v rows, %v, %v", size, b, rows, r.Modules[0], r.Modules[1])
			}
		}
	}
	_, err := new(strategy.Runner).Run(overAxis("dp", 3), draw(t, 1, 14, 1024, 96, true).input(mesh.Sizes{DP: 7, CP: 1, PP: 1, TP: 1}, 1))
	if err == nil || !strings.Contains(err.Error(), "group_size 3 does not divide the 7 buckets") || !strings.Contains(err.Error(), "the last group may be smaller") {
		t.Errorf("without the word: %v", err)
	}
}

// TestGraphsOfSources: samples of a source that a graph names cost what that says, and its
// images are encoded by themselves; those of a source that no graph of images has are encoded
// where their row is.
func TestGraphsOfSources(t *testing.T) {
	b := draw(t, 3, 64, 1024, 96, true)
	in := b.input(mesh.Sizes{DP: 4, CP: 1, PP: 1, TP: 2}, 1)
	in.Sources = []string{"a", "b", "c", "d", "e"}
	r, err := new(strategy.Runner).Run(func(s *strategy.Step) error {
		g := s.Graph(dgraph.Text)
		g.Mix(s.Schedule())
		g.Distribute("dp", 1)
		g.Cost(model(t, "linear(a=1)"))
		g.Balance(strategy.Balance{Level: strategy.Interleaved})
		s.Graph(dgraph.Text, "b", "d").Cost(model(t, "linear(a=1000)"))
		for _, sources := range [][]string{{"a"}, {"c", "e"}} {
			v := s.Graph(dgraph.Image, sources...)
			v.Distribute("world", 1)
			v.Cost(model(t, "linear(a=1, of=patches)"))
			v.Balance(strategy.Balance{})
		}
		return g.Plan()
	}, in)
	if err != nil {
		t.Fatal(err)
	}
	want := int64(0) // of all ranks
	for i, row := range r.RowOf {
		first, end := b.buf.ImagesOf(i)
		named := slices.Contains([]int32{0, 2, 4}, b.buf.Source[i])
		for image := first; image < end; image++ {
			if encoder := r.Encoder[image]; encoder >= 0 != (named && row >= 0) {
				t.Fatalf("image %d of source %d in row %d has encoder %d", image, b.buf.Source[i], row, encoder)
			}
		}
		if row >= 0 {
			want += int64(b.buf.Tokens[i]) * map[bool]int64{true: 1000, false: 1}[slices.Contains([]int32{1, 3}, b.buf.Source[i])]
		}
	}
	var names []string
	for _, m := range r.Modules {
		names = append(names, m.Name)
		if m.Buckets.Imbalance() > 1.02 && m.Name != "text of b, d" {
			t.Errorf("%v", m)
		}
	}
	if !slices.Equal(names, []string{"text", "text of b, d", "image of a", "image of c, e"}) {
		t.Errorf("modules %q", names)
	}
	if m := r.Modules[0]; m.Buckets.Total != want || m.Model != "linear(a=1), linear(a=1000) of b, d" {
		t.Errorf("%v costs %d in all; want %d", m, m.Buckets.Total, want)
	}
}

// moving is a row method.
type moving func(in strategy.RowSamples) ([]int32, error)

func (moving) Name() string                                     { return "moving" }
func (m moving) Assign(in strategy.RowSamples) ([]int32, error) { return m(in) }
func (m moving) level(l strategy.Level) strategy.Balance        { return strategy.Balance{Level: l, Rows: m} }
func kept(in strategy.RowSamples) ([]int32, error)              { return in.Row, nil }
func swapped(in strategy.RowSamples) (row []int32, err error) {
	for _, r := range in.Row {
		row = append(row, map[int32]int32{0: 1, 1: 0}[min(r, 2)]+max(r, 2)*min(r/2, 1)) // rows 0 and 1 change places
	}
	return row, nil
}

// TestRowMethod: what a method of one's own says of samples between rows is what rows hold;
// what is wrong with it is named.
func TestRowMethod(t *testing.T) {
	b := draw(t, 3, 16, 1024, 90, true)
	run := func(how strategy.Balance) (*strategy.Result, error) {
		return new(strategy.Runner).Run(text(model(t, "quadratic"), 1, how), b.input(mesh.Sizes{DP: 2, CP: 1, PP: 1, TP: 1}, 1))
	}
	for _, level := range []strategy.Level{strategy.Intra, strategy.Interleaved} {
		same, err1 := run(moving(kept).level(level))
		other, err2 := run(moving(swapped).level(level))
		if err1 != nil || err2 != nil || !slices.Equal(same.RowOf, b.rowOf) || slices.Equal(other.RowOf, b.rowOf) {
			t.Fatalf("level %v: %v, %v", level, err1, err2)
		}
		for i, row := range other.RowOf {
			if want := b.rowOf[i]; row != want && !(want == 0 && row == 1 || want == 1 && row == 0) {
				t.Fatalf("level %v: sample %d of row %d is in row %d", level, i, want, row)
			}
		}
	}
	for want, m := range map[string]moving{
		`method "moving": a reason`:                    func(strategy.RowSamples) ([]int32, error) { return nil, errors.New("a reason") },
		`method "moving": 1 samples have a row`:        func(strategy.RowSamples) ([]int32, error) { return []int32{0}, nil },
		`sample 0 goes to row 16; rows are 0 to 15`:    func(in strategy.RowSamples) ([]int32, error) { return slices.Repeat([]int32{16}, len(in.Row)), nil },
		`it has room for 1024`:                         func(in strategy.RowSamples) ([]int32, error) { return make([]int32, len(in.Row)), nil },
		`method "moving" panicked: oh (distribute_tes`: func(in strategy.RowSamples) ([]int32, error) { panic("oh") },
	} {
		if _, err := run(m.level(strategy.Intra)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
	if _, err := run(moving(kept).level(strategy.Inter)); err == nil || !strings.Contains(err.Error(), `"moving" moves samples between rows, which level inter does not`) {
		t.Errorf("at inter: %v", err)
	}
	for want, set := range map[string]strategy.RowMethods{
		"a name other than auto": {"auto": moving(kept)}, `calls itself "moving"`: {"other": moving(kept)}, "and a method are needed": {"x": nil},
	} {
		if err := set.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
	if _, err := (strategy.RowMethods{"moving": moving(kept)}).Named("movin"); err == nil || !strings.Contains(fmt.Sprint(err), `did you mean "moving"?`) {
		t.Errorf("an unknown name: %v", err)
	}
}
