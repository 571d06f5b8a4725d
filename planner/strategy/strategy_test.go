package strategy_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// batch is a drawn and packed step.
type batch struct {
	buf   *dgraph.Buffer
	rowOf []int32
	shape strategy.Shape
}

// draw makes a step of rows of length tokens: samples of all lengths, filling the rows
// to about the given percentage, some of them carried in, some without room.
func draw(t testing.TB, seed uint64, rows int, length int32, percent int64, packing bool) batch {
	rng := rand.New(rand.NewPCG(seed, 3))
	b := &dgraph.Buffer{ImageOffsets: []int32{0}}
	seen := map[int32]int64{}
	for tokens, want := int64(0), int64(rows)*int64(length)*percent/100; tokens < want && (packing || b.Len() < rows); {
		n := min(length, 1+int32(float64(length)/40*rng.ExpFloat64()*rng.ExpFloat64()))
		source := int32(rng.IntN(5))
		b.Source = append(b.Source, source)
		b.Seq, b.Index = append(b.Seq, seen[source]/60), append(b.Index, int32(seen[source]%60))
		seen[source]++
		b.Tokens = append(b.Tokens, n)
		for range max(0, rng.IntN(6)-3) {
			b.Patches = append(b.Patches, rng.Int32N(1024))
		}
		b.ImageOffsets = append(b.ImageOffsets, int32(len(b.Patches)))
		tokens += int64(n)
	}
	b.Carried = b.Len() / 50
	out := batch{b, make([]int32, b.Len()), strategy.Shape{Rows: rows, SequenceLength: length, MicrobatchSize: 1, Packing: packing}}
	for i := range out.rowOf {
		out.rowOf[i] = int32(i)
	}
	if packing {
		var p balance.Packer
		bin, _, err := p.Pack(b.Tokens, b.Carried, length, rows, b.Len())
		if err != nil {
			t.Fatal(err)
		}
		copy(out.rowOf, bin)
	}
	return out
}

func (b batch) input(sizes mesh.Sizes, microbatchSize int) strategy.Input {
	sizes.VPP, sizes.EP = max(1, sizes.VPP), 1
	tree, err := mesh.New(sizes)
	if err != nil {
		panic(err)
	}
	b.shape.MicrobatchSize = microbatchSize
	return strategy.Input{Number: 7, Tree: tree, Shape: b.shape, Draw: func([]uint64) (*dgraph.Buffer, []int32, error) {
		return b.buf, b.rowOf, nil
	}}
}

func model(t testing.TB, text string) cost.Model {
	t.Helper()
	m, err := cost.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// text is the strategy for rows, vision the one for rows and images.
func text(m cost.Model, groupSize int, b strategy.Balance) strategy.Strategy {
	return func(s *strategy.Step) error {
		g := s.Graph(dgraph.Text)
		g.Mix(s.Schedule())
		g.Distribute("dp", groupSize)
		g.Cost(m)
		g.Balance(b)
		return g.Plan()
	}
}

func vision(rows, images cost.Model, axis string, groupSize int, b strategy.Balance) strategy.Strategy {
	return func(s *strategy.Step) error {
		if err := text(rows, 1, b)(s); err != nil {
			return err
		}
		v := s.Graph(dgraph.Image)
		v.Distribute(axis, groupSize)
		v.Cost(images)
		v.Balance(strategy.Balance{Method: b.Method})
		return v.Plan()
	}
}

// zigzag deals items to bins back and forth: a method of one's own.
type zigzag struct{}

func (zigzag) Name() string { return "zigzag" }

func (zigzag) Assign(costs []int64, bins int) ([][]int32, error) {
	order := make([]int32, len(costs))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return int(costs[b] - costs[a]) })
	out := make([][]int32, bins)
	for k, item := range order {
		bin := k % (2 * bins)
		if bin >= bins {
			bin = 2*bins - 1 - bin
		}
		out[bin] = append(out[bin], item)
	}
	return out, nil
}

var meshes = []struct {
	mesh      mesh.Sizes
	size      int // rows of a microbatch
	groupSize int
}{
	{mesh.Sizes{DP: 1, CP: 1, PP: 1, TP: 1}, 1, 1},
	{mesh.Sizes{DP: 8, CP: 1, PP: 1, TP: 2}, 1, 1},
	{mesh.Sizes{DP: 8, CP: 1, PP: 2, TP: 1}, 3, 1},
	{mesh.Sizes{DP: 12, CP: 2, PP: 1, TP: 1}, 2, 3},
	{mesh.Sizes{DP: 4, CP: 1, PP: 4, TP: 1, VPP: 2}, 1, 2},
	{mesh.Sizes{DP: 48, CP: 1, PP: 1, TP: 1}, 2, 0},
}

var balances = []strategy.Balance{
	{Level: strategy.Inter}, {Level: strategy.Intra}, {Level: strategy.Interleaved}, {Level: strategy.KeepOrder},
	{Level: strategy.Interleaved, Method: "lpt"}, {Level: strategy.Inter, Method: "kk"}, {Level: strategy.Inter, Custom: zigzag{}},
}

// TestLaws plans random steps on several meshes at every level. Nothing is lost or
// doubled, the cap is kept, counts are equal, what rows hold depends on no mesh,
// and a plan is the same each time and on any number of processors.
func TestLaws(t *testing.T) {
	m := model(t, "quadratic(a=10, b=1)")
	var used strategy.Runner
	for seed := range uint64(6) {
		b := draw(t, seed, 96, 512, int64(60+10*seed), true)
		for _, how := range balances {
			var first *strategy.Result
			for _, on := range meshes {
				name := fmt.Sprintf("seed %d, %v %q on %+v", seed, how.Level, how.Method, on)
				in := b.input(on.mesh, on.size)
				r, err := used.Run(text(m, on.groupSize, how), in)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				check(t, name, b, in, r)
				if first == nil {
					first = r
				}
				if !slices.Equal(r.RowOf, first.RowOf) {
					t.Errorf("%s: rows hold something else than on the first mesh", name)
				}
				before := runtime.GOMAXPROCS(1)
				again, err := new(strategy.Runner).Run(text(m, on.groupSize, how), in)
				runtime.GOMAXPROCS(before)
				if err != nil || !reflect.DeepEqual(r, again) {
					t.Errorf("%s: another plan the second time (%v)", name, err)
				}
			}
			moves := how.Level == strategy.Intra || how.Level == strategy.Interleaved
			if same := slices.Equal(first.RowOf, b.rowOf); same == moves && seed < 4 {
				t.Errorf("seed %d, %v: rows are as packed: %v", seed, how.Level, same)
			}
		}
	}
}

// check compares a plan with the definition.
func check(t *testing.T, name string, b batch, in strategy.Input, r *strategy.Result) {
	t.Helper()
	tokens := make([]int64, in.Shape.Rows)
	for i, row := range r.RowOf {
		if (row < 0) != (b.rowOf[i] < 0) {
			t.Fatalf("%s: sample %d was in row %d and is in row %d", name, i, b.rowOf[i], row)
		}
		if row >= 0 {
			tokens[row] += int64(b.buf.Tokens[i])
		}
	}
	if most := slices.Max(tokens); most > int64(in.Shape.SequenceLength) {
		t.Fatalf("%s: a row has %d tokens", name, most)
	}
	type slot struct{ rank, microbatch, position int32 }
	seen := map[slot]bool{}
	for row := range r.Rank {
		seen[slot{r.Rank[row], r.Microbatch[row], r.Position[row]}] = true
	}
	dp := in.Tree.Sizes().DP
	for rank := range int32(dp) {
		for m := range int32(in.Shape.Rows / dp / in.Shape.MicrobatchSize) {
			for p := range int32(in.Shape.MicrobatchSize) {
				if !seen[slot{rank, m, p}] {
					t.Fatalf("%s: rank %d, microbatch %d, position %d has no row", name, rank, m, p)
				}
			}
		}
	}
	if len(seen) != len(r.Rank) || len(r.Rank) != in.Shape.Rows {
		t.Fatalf("%s: %d places for %d rows", name, len(seen), len(r.Rank))
	}
}

// TestKeepOrder compares the default with the rule that it is documented by.
func TestKeepOrder(t *testing.T) {
	b := draw(t, 1, 96, 256, 90, true)
	m := model(t, "linear")
	for _, on := range meshes {
		in := b.input(on.mesh, on.size)
		for name, plan := range map[string]strategy.Strategy{
			"InOrder":      strategy.InOrder,
			"KeepOrder":    text(m, on.groupSize, strategy.Balance{Level: strategy.KeepOrder}),
			"no balance":   func(s *strategy.Step) error { g := s.Graph(dgraph.Text); g.Mix(nil); return g.Plan() },
			"intra places": text(m, on.groupSize, strategy.Balance{Level: strategy.Intra}),
		} {
			r, err := new(strategy.Runner).Run(plan, in)
			if err != nil {
				t.Fatal(err)
			}
			for row := range int32(in.Shape.Rows) {
				size, dp := int32(on.size), int32(on.mesh.DP)
				if r.Rank[row] != row/size%dp || r.Microbatch[row] != row/size/dp || r.Position[row] != row%size {
					t.Fatalf("%s on %+v: row %d is at rank %d, microbatch %d, position %d", name, on, row, r.Rank[row], r.Microbatch[row], r.Position[row])
				}
			}
			if name != "intra places" && &r.RowOf[0] != &b.rowOf[0] {
				t.Errorf("%s: rows were copied", name)
			}
		}
	}
}

// TestBalances checks that each level does what it is for. Giving out rows evens
// ranks, and slots as far as rows allow; evening rows makes everything even.
func TestBalances(t *testing.T) {
	b := draw(t, 2, 768, 2048, 92, true)
	mild, steep := model(t, "quadratic(a=10000, b=1)"), model(t, "quadratic(a=100, b=1)")
	for _, on := range []struct {
		pp, size, groupSize int
	}{{1, 1, 1}, {2, 4, 1}, {1, 1, 4}} {
		module := func(m cost.Model, how strategy.Balance) (imbalance, inLockstep float64) {
			in := b.input(mesh.Sizes{DP: 16, CP: 1, PP: on.pp, TP: 1}, on.size)
			r, err := new(strategy.Runner).Run(text(m, on.groupSize, how), in)
			if err != nil || len(r.Modules) != 1 {
				t.Fatal(err, r)
			}
			got := r.Modules[0]
			imbalance, inLockstep = got.Buckets.Imbalance(), float64(got.Lockstep)/got.Buckets.Mean()
			t.Logf("%+v %v %s: max/mean %.5f, in lockstep %.5f, by %s", on, how.Level, how.Method, imbalance, inLockstep, m)
			return imbalance, inLockstep
		}
		_, inOrder := module(steep, strategy.Balance{Level: strategy.KeepOrder})
		auto := 0.0
		for _, method := range []string{"auto", "lpt", "kk"} {
			ranks, slots := module(steep, strategy.Balance{Method: method})
			if method == "auto" {
				auto = ranks + slots
			} else if on.size == 1 && auto >= ranks+slots { // else they begin with other microbatches
				t.Errorf("%+v: auto is at %.5f, %s at %.5f", on, auto, method, ranks+slots)
			}
			if ranks > 1.01 || slots > 0.95*inOrder {
				t.Errorf("%+v, inter %s: ranks are %.4f above even, slots %.4f; in order %.4f", on, method, ranks, slots, inOrder)
			}
		}
		for _, level := range []strategy.Level{strategy.Intra, strategy.Interleaved} {
			if ranks, slots := module(mild, strategy.Balance{Level: level}); ranks > 1.005 || slots > 1.005 {
				t.Errorf("%+v, %v: ranks are %.4f above even, slots %.4f", on, level, ranks, slots)
			}
		}
	}
}

// TestPipelineOrder: with a pipeline the slots are small at both ends.
func TestPipelineOrder(t *testing.T) {
	b := draw(t, 4, 256, 1024, 60, true)
	m := model(t, "quadratic")
	for _, pp := range []int{1, 2} {
		r, err := new(strategy.Runner).Run(text(m, 1, strategy.Balance{}), b.input(mesh.Sizes{DP: 16, CP: 1, PP: pp, TP: 1}, 1))
		if err != nil {
			t.Fatal(err)
		}
		sums := make([]int64, r.Microbatches)
		for i, row := range r.RowOf {
			if row >= 0 {
				units, _ := m.Cost(cost.Sample{Tokens: int64(b.buf.Tokens[i])})
				sums[r.Microbatch[row]] += units
			}
		}
		top := slices.Index(sums, slices.Max(sums))
		ends := slices.IsSorted(sums[:top+1]) && slices.IsSortedFunc(sums[top:], func(a, b int64) int { return int(b - a) })
		if !ends || pp == 1 && top != 0 || pp == 2 && (top < 4 || top > 11) {
			t.Errorf("pp %d: slots cost %v", pp, sums)
		}
	}
}

// TestBlocked: a step whose samples are not known yet is tried again.
func TestBlocked(t *testing.T) {
	b := draw(t, 1, 16, 256, 90, true)
	in := b.input(mesh.Sizes{DP: 2, CP: 1, PP: 1, TP: 1}, 1)
	ready, asked := in.Draw, 0
	var got []uint64
	in.Draw = func(shares []uint64) (*dgraph.Buffer, []int32, error) {
		got = shares
		if asked++; asked < 3 {
			return nil, nil, strategy.ErrBlocked
		}
		return ready(shares)
	}
	plan := func(s *strategy.Step) error {
		g := s.Graph(dgraph.Text)
		g.Mix(strategy.Shares{1, 3})
		g.Distribute("nowhere", 5) // does nothing while the step is blocked
		if asked == 3 {
			t.Log(s.Result(), len(s.RowOf()))
		}
		return g.Plan()
	}
	var r strategy.Runner
	for range 2 {
		if _, err := r.Run(plan, in); !errors.Is(err, strategy.ErrBlocked) {
			t.Fatalf("got %v", err)
		}
	}
	if _, err := r.Run(plan, in); err == nil || errors.Is(err, strategy.ErrBlocked) || !slices.Equal(got, []uint64{1, 3}) {
		t.Fatalf("got %v with shares %v", err, got)
	}
	if _, err := r.Run(strategy.InOrder, in); err != nil {
		t.Fatal(err)
	}
}

// TestNoSamples: rows without samples are padding, and are placed like others.
func TestNoSamples(t *testing.T) {
	b := batch{&dgraph.Buffer{}, nil, strategy.Shape{Rows: 8, SequenceLength: 16, MicrobatchSize: 1, Packing: true}}
	for _, how := range balances {
		in := b.input(mesh.Sizes{DP: 2, CP: 1, PP: 2, TP: 1}, 2)
		r, err := new(strategy.Runner).Run(text(model(t, "quadratic"), 1, how), in)
		if err != nil {
			t.Fatal(err)
		}
		check(t, how.Level.String(), b, in, r)
	}
}

// TestEvenBesideGiants: one sample that costs more than a mean row does not keep the
// other rows from being evened.
func TestEvenBesideGiants(t *testing.T) {
	b := draw(t, 3, 256, 4096, 90, true)
	m := model(t, "quadratic(a=4096, b=1)")
	for _, giants := range []int{0, 1, 5} {
		step := batch{&dgraph.Buffer{}, nil, b.shape}
		for i, row := range b.rowOf {
			n := b.buf.Tokens[i]
			switch {
			case n > 1000 || row < 0: // none that is long by itself
				continue
			case int(row) < giants: // one in the place of all others
				if slices.Contains(step.rowOf, row) {
					continue
				}
				n = 4096
			}
			step.buf.Source, step.buf.Seq, step.buf.Index = append(step.buf.Source, 0), append(step.buf.Seq, 0), append(step.buf.Index, int32(i))
			step.buf.Tokens, step.rowOf = append(step.buf.Tokens, n), append(step.rowOf, row)
		}
		in := step.input(mesh.Sizes{DP: 1, CP: 1, PP: 1, TP: 1}, 1)
		r, err := new(strategy.Runner).Run(text(m, 1, strategy.Balance{Level: strategy.Intra}), in)
		if err != nil {
			t.Fatal(err)
		}
		check(t, "giants", step, in, r)
		rows := make([]int64, 256)
		for i, row := range r.RowOf {
			units, _ := m.Cost(cost.Sample{Tokens: int64(step.buf.Tokens[i])})
			rows[row] += units
		}
		slices.Sort(rows)
		others := rows[:256-giants]
		total := int64(0)
		for _, units := range others {
			total += units
		}
		if most := float64(others[len(others)-1]) / (float64(total) / float64(len(others))); most > 1.01 {
			t.Errorf("with %d giants the largest other row is %.3f of the mean", giants, most)
		}
	}
}
