package strategy_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// drawWide makes a step of units of length tokens, some of whose samples are up to
// widest times as long.
func drawWide(t testing.TB, seed uint64, units int, length, widest int32) batch {
	rng := rand.New(rand.NewPCG(seed, 4))
	b := &dgraph.Buffer{}
	for tokens := int32(0); tokens < int32(units)*length; {
		n := 1 + rng.Int32N(length/2)
		if rng.IntN(30) == 0 {
			n = 1 + rng.Int32N(length*widest)
		}
		b.Source, b.Seq, b.Index = append(b.Source, 0), append(b.Seq, int64(b.Len()/50)), append(b.Index, int32(b.Len()%50))
		b.Tokens = append(b.Tokens, n)
		tokens += n
	}
	var p balance.WidePacker
	row, n, err := p.Pack(b.Tokens, 0, balance.Wide{Capacity: length, Widest: widest, Units: units}, b.Len())
	if err != nil || n != b.Len() {
		t.Fatal(n, err)
	}
	return batch{b, slices.Clone(row), strategy.Shape{Rows: units, SequenceLength: length, Packing: true, Pool: true, Widest: widest}}
}

func pooled(b strategy.Balance, axis string, groupSize int, t testing.TB) strategy.Strategy {
	return pooledBy("quadratic", b, axis, groupSize, t)
}

func pooledBy(name string, b strategy.Balance, axis string, groupSize int, t testing.TB) strategy.Strategy {
	cost := model(t, name)
	return func(s *strategy.Step) error {
		g := s.Graph(dgraph.Text)
		g.Mix(s.Schedule())
		g.Distribute(axis, groupSize)
		g.Cost(cost)
		g.Balance(b)
		return g.Plan()
	}
}

// TestWideRows: rows have the width of their tokens and aligned ranks; balancing makes
// ranks cost alike; and each constructor gets the rows that its ranks have a part of,
// each once.
func TestWideRows(t *testing.T) {
	b := drawWide(t, 1, 16*40, 1024, 8)
	in := b.input(mesh.Sizes{DP: 8, CP: 2, PP: 1, TP: 2}, 1)
	even, err := new(strategy.Runner).Run(pooled(strategy.Balance{}, "cp", 1, t), in)
	if err != nil {
		t.Fatal(err)
	}
	inOrder, err := new(strategy.Runner).Run(pooled(strategy.Balance{Level: strategy.KeepOrder}, "cp", 1, t), in)
	if err != nil {
		t.Fatal(err)
	}
	before, after := inOrder.Modules[0].Buckets, even.Modules[0].Buckets
	t.Logf("%v, in order %v", even.Modules[0], before)
	if after.Bins != 16 || after.Imbalance()-1 > 0.6*(before.Imbalance()-1) {
		t.Errorf("balanced: %v; in order: %v", after, before)
	}
	for _, r := range []*strategy.Result{even, inOrder} {
		seen := 0
		for _, width := range []int32{1, 2, 4, 8} {
			if slices.Contains(r.Width, width) {
				seen++
			}
		}
		if seen != 4 || r.Microbatches != 40 || r.Ranks() != 16 {
			t.Fatalf("%d widths, %d microbatches of %d ranks", seen, r.Microbatches, r.Ranks())
		}
		for _, buckets := range [][]uint32{{0}, {7, 3}, {2, 3, 4, 5}, {0, 1, 2, 3, 4, 5, 6, 7}} {
			checkPooledPart(t, b, r, buckets)
		}
	}
}

// TestWideRowsByCost: at the levels that look inside rows, widths follow costs, so that ranks
// and slots are even though samples fit narrower rows.
func TestWideRowsByCost(t *testing.T) {
	b := drawWide(t, 3, 16*40, 1024, 2)
	b.shape.Widest = 16
	b.shape.Rows += 16 * 4 // room to cost alike
	in := b.input(mesh.Sizes{DP: 8, CP: 2, PP: 1, TP: 2}, 1)
	var runner strategy.Runner
	inter, err := runner.Run(pooledBy("quadratic(a=1, b=1)", strategy.Balance{}, "cp", 1, t), in)
	if err != nil {
		t.Fatal(err)
	}
	even, err := runner.Run(pooledBy("quadratic(a=1, b=1)", strategy.Balance{Level: strategy.Interleaved}, "cp", 1, t), in)
	if err != nil {
		t.Fatal(err)
	}
	before, after := inter.Modules[0], even.Modules[0]
	t.Logf("%v, lockstep %.4f; by tokens %v, lockstep %.4f", after, float64(after.Lockstep)/after.Buckets.Mean(), before, float64(before.Lockstep)/before.Buckets.Mean())
	if after.Buckets.Imbalance() > 1.001 || float64(after.Lockstep) > 1.01*after.Buckets.Mean() || float64(before.Lockstep) < 1.05*before.Buckets.Mean() {
		t.Errorf("by cost: %v in lockstep %d; by tokens: %v in lockstep %d", after.Buckets, after.Lockstep, before.Buckets, before.Lockstep)
	}
	units := int32(0)
	for _, width := range even.Width {
		units += width
	}
	if int(units) != b.shape.Rows || slices.Equal(inter.Width, even.Width) {
		t.Errorf("rows take %d units of %d, with the same widths: %v", units, b.shape.Rows, slices.Equal(inter.Width, even.Width))
	}
	checkPooledPart(t, b, even, []uint32{0, 1, 2, 3, 4, 5, 6, 7})
}

func checkPooledPart(t *testing.T, b batch, r *strategy.Result, buckets []uint32) {
	t.Helper()
	part := r.Part(buckets)
	want := map[uint32]bool{}
	for row := range r.Rank {
		first, width := r.Span(row)
		for rank := first; rank < first+width; rank++ {
			if slices.Contains(buckets, uint32(rank/2)) {
				want[uint32(row)] = true
			}
		}
	}
	if len(part.Width) != len(part.Rows) || len(part.Rows) != len(want) {
		t.Fatalf("the part of %v has %d rows with %d widths, want %d", buckets, len(part.Rows), len(part.Width), len(want))
	}
	sample := 0
	for k, row := range part.Rows {
		first, width := r.Span(int(row))
		if !want[row] || part.Rank[k] != uint32(first) || part.Width[k] != uint32(width) || part.Microbatch[k] != uint32(r.Microbatch[row]) {
			t.Fatalf("row %d is twice in the part of %v, or is at rank %d, width %d; want %d, %d", row, buckets, part.Rank[k], part.Width[k], first, width)
		}
		delete(want, row)
		for i, at := range r.RowOf {
			if at == int32(row) {
				if part.SampleIndex[sample] != uint32(b.buf.Index[i]) || part.SampleLength[sample] != uint32(b.buf.Tokens[i]) {
					t.Fatalf("row %d has sample %d of %d tokens, want %v", row, part.SampleIndex[sample], part.SampleLength[sample], b.buf.Ref(i))
				}
				sample++
			}
		}
	}
}

func TestWideRowsRefuse(t *testing.T) {
	b := drawWide(t, 2, 64, 256, 4)
	sizes := mesh.Sizes{DP: 4, CP: 2, PP: 1, TP: 1}
	for _, tc := range []struct {
		mesh      mesh.Sizes
		axis      string
		groupSize int
		balance   strategy.Balance
		want      string
	}{
		{sizes, "dp", 1, strategy.Balance{}, "rows are distributed at cp, not at dp"},
		{sizes, "cp", 2, strategy.Balance{}, "group_size 2: rows of several widths are placed over all ranks at once"},
		{sizes, "cp", 1, strategy.Balance{Method: "kk"}, "are balanced by method auto; take it"},
		{sizes, "cp", 1, strategy.Balance{Custom: zigzag{}}, "are balanced by method auto; take it"},
		{mesh.Sizes{DP: 3, CP: 2, PP: 1, TP: 1}, "cp", 1, strategy.Balance{}, "rows of up to 4 ranks do not divide a pool of dp 3 * cp 2 ranks"},
		{mesh.Sizes{DP: 12, CP: 1, PP: 1, TP: 1}, "cp", 1, strategy.Balance{}, "64 sequences are not a multiple of 12, for the 12 ranks of dp 12 * cp 1; valid are 60 and 72"},
		{mesh.Sizes{DP: 8, CP: 1, PP: 3, TP: 1, VPP: 2}, "cp", 1, strategy.Balance{}, "64 sequences are not a multiple of 24, for the 8 ranks of dp 8 * cp 1 and pp 3, which the interleaved schedule of vpp 2 needs; valid are 48 and 72"},
	} {
		_, err := new(strategy.Runner).Run(pooled(tc.balance, tc.axis, tc.groupSize, t), b.input(tc.mesh, 1))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v at %s: %v, want %s", tc.mesh, tc.axis, err, tc.want)
		}
	}
	in := b.input(sizes, 1)
	raw := func(s *strategy.Step) error {
		g := s.Graph(dgraph.Text)
		g.Mix(nil)
		n := make([]int32, 64)
		strategy.PlanRaw(s, s.RowOf(), n, n, n)
		return g.Plan()
	}
	if _, err := new(strategy.Runner).Run(raw, in); err == nil || !strings.Contains(err.Error(), "it places rows of one width") {
		t.Errorf("PlanRaw: %v", err)
	}
}
