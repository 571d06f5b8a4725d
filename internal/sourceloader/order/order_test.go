package order_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// files makes files of the given unit counts; a file has 10 bytes a unit.
func files(units ...int) []order.File {
	out := make([]order.File, len(units))
	for i, n := range units {
		out[i] = order.File{Object: store.Object{Size: int64(10 * n)}, Chunks: n}
	}
	return out
}

func TestLayout(t *testing.T) {
	type units = []order.Unit
	for _, c := range []struct {
		name   string
		files  []order.File
		target int64
		want   []units
	}{
		{"no file", nil, 100, nil},
		{"one empty file", files(0), 100, nil},
		{"one unit", files(1), 100, []units{{{File: 0, Chunk: 0}}}},
		{"large files", files(2, 3), 100, []units{
			{{File: 0, Chunk: 0}}, {{File: 0, Chunk: 1}},
			{{File: 1, Chunk: 0}}, {{File: 1, Chunk: 1}}, {{File: 1, Chunk: 2}},
		}},
		{"small files up to exactly the target", files(1, 1, 1, 1, 1), 20, []units{
			{{File: 0}, {File: 1}}, {{File: 2}, {File: 3}}, {{File: 4}},
		}},
		{"a target below one file joins none", files(1, 1), 9, []units{{{File: 0}}, {{File: 1}}}},
		{"a file of several units ends a group", files(1, 1, 2, 1, 1), 100, []units{
			{{File: 0}, {File: 1}}, {{File: 2, Chunk: 0}}, {{File: 2, Chunk: 1}}, {{File: 3}, {File: 4}},
		}},
		{"empty files take no chunk and end a group", files(0, 1, 0, 1, 1, 0), 100, []units{
			{{File: 1}}, {{File: 3}, {File: 4}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := order.NewLayout(c.files, c.target)
			if l.Chunks() != int64(len(c.want)) {
				t.Fatalf("%d chunks, want %d", l.Chunks(), len(c.want))
			}
			for k, want := range c.want {
				if got := l.Units(int64(k)); !slices.Equal(got, want) {
					t.Errorf("chunk %d is %v, want %v", k, got, want)
				}
			}
		})
	}
}

// TestLayoutPartition checks, on random folders, that the chunks hold every unit
// of every file once and in order, and that no group is larger than its target.
func TestLayoutPartition(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		var all []order.File
		var want []order.Unit
		for f := range rng.IntN(30) {
			n := []int{0, 1, 1, 1, 1, 2, 5}[rng.IntN(7)]
			all = append(all, order.File{Object: store.Object{Size: rng.Int64N(50)}, Chunks: n})
			for k := range n {
				want = append(want, order.Unit{File: f, Chunk: k})
			}
		}
		target := rng.Int64N(200)
		l := order.NewLayout(all, target)
		var got []order.Unit
		for c := range l.Chunks() {
			units := l.Units(c)
			size := int64(0)
			for _, u := range units {
				size += all[u.File].Size
			}
			if len(units) > 1 && size > target {
				t.Fatalf("chunk %d joins %d bytes, target is %d", c, size, target)
			}
			got = append(got, units...)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("units %v, want %v", got, want)
		}
	}
}

func tenChunks(shuffle bool, block int) order.Order {
	return order.Order{Source: "web", Seed: 42, Shuffle: shuffle, Block: block, Layout: order.NewLayout(files(10), 1)}
}

func TestChunksGolden(t *testing.T) {
	o := tenChunks(true, 4)
	for seq, want := range [][]int64{{5, 6, 7, 4}, {2, 8, 3, 0}, {1, 9}, {4, 0, 3, 1}, {6, 5, 9, 8}, {2, 7}} {
		if got := o.Chunks(int64(seq)); !slices.Equal(got, want) {
			t.Errorf("block %d is %v, want %v", seq, got, want)
		}
	}
}

func TestChunksWithoutShuffle(t *testing.T) {
	o := tenChunks(false, 4)
	for seq, want := range [][]int64{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}, {0, 1, 2, 3}} {
		if got := o.Chunks(int64(seq)); !slices.Equal(got, want) {
			t.Errorf("block %d is %v, want %v", seq, got, want)
		}
	}
}

// TestEpochs checks that each epoch holds every chunk once, whatever the block
// size, and that shuffled epochs differ.
func TestEpochs(t *testing.T) {
	for _, chunks := range []int{1, 2, 7, 64, 65, 1000} {
		for _, block := range []int{1, 2, 4, 64, 5000} {
			for _, shuffle := range []bool{true, false} {
				o := order.Order{Source: "s", Seed: 7, Shuffle: shuffle, Block: block, Layout: order.NewLayout(files(chunks), 1)}
				var before []int64
				for epoch := range int64(3) {
					got := epochOf(t, &o, epoch)
					if shuffle && chunks >= 64 && slices.Equal(got, before) {
						t.Errorf("%d chunks in blocks of %d: epoch %d comes like the one before", chunks, block, epoch)
					}
					before = slices.Clone(got)
					slices.Sort(got)
					for i, c := range got {
						if c != int64(i) {
							t.Fatalf("%d chunks in blocks of %d, epoch %d: chunk %d is missing or doubled", chunks, block, epoch, i)
						}
					}
				}
			}
		}
	}
}

// epochOf returns all chunks of an epoch in the order they are read.
func epochOf(t *testing.T, o *order.Order, epoch int64) []int64 {
	t.Helper()
	var all []int64
	for b := range o.Blocks() {
		seq := epoch*o.Blocks() + b
		if e, n := o.Position(seq); e != epoch || n != b {
			t.Fatalf("block %d lies at (%d, %d), want (%d, %d)", seq, e, n, epoch, b)
		}
		all = append(all, o.Chunks(seq)...)
	}
	if int64(len(all)) != o.Layout.Chunks() {
		t.Fatalf("epoch %d has %d chunks, want %d", epoch, len(all), o.Layout.Chunks())
	}
	return all
}

func TestOrderDependsOnNames(t *testing.T) {
	a := order.Order{Source: "a", Seed: 1, Shuffle: true, Block: 100, Layout: order.NewLayout(files(100), 1)}
	b, c := a, a
	b.Source, c.Seed = "b", 2
	if slices.Equal(a.Chunks(0), b.Chunks(0)) {
		t.Error("two sources come in the same order")
	}
	if slices.Equal(a.Chunks(0), c.Chunks(0)) {
		t.Error("two seeds give the same order")
	}
}

var somePlaces = []order.Place{
	{File: 0, Row: 0}, {File: 0, Row: 1}, {File: 0, Row: 1, Piece: 1}, {File: 0, Row: 2},
	{File: 1, Row: 0}, {File: 1, Row: 1}, {File: 2, Row: 7}, {File: 2, Row: 7, Piece: 1},
}

func TestSortGolden(t *testing.T) {
	o := tenChunks(true, 4)
	for seq, want := range map[int64][]int32{
		0: {4, 7, 1, 5, 6, 0, 2, 3},
		1: {4, 7, 1, 5, 6, 0, 2, 3}, // a key belongs to the sample and the epoch, not to the block
		3: {1, 5, 4, 2, 0, 7, 6, 3},
	} {
		if got := o.Sort(seq, somePlaces); !slices.Equal(got, want) {
			t.Errorf("block %d: %v, want %v", seq, got, want)
		}
	}
	o.Shuffle = false
	if got := o.Sort(0, somePlaces); !slices.Equal(got, []int32{0, 1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("without shuffle: %v", got)
	}
	if got := o.Sort(0, nil); len(got) != 0 {
		t.Errorf("no sample: %v", got)
	}
}

// TestSortSurvivesFilter takes samples out, as a filter does, and checks that
// the rest keep their order, also when some rows were split.
func TestSortSurvivesFilter(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	o := tenChunks(true, 4)
	for trial := range int64(200) {
		var all []order.Place
		for f := range int32(3) {
			for r := range rng.Int64N(20) {
				for p := range int32(rng.IntN(3) + 1) {
					all = append(all, order.Place{File: f, Row: r * 1000, Piece: p})
				}
			}
		}
		var kept []order.Place
		for _, p := range all {
			if rng.IntN(3) > 0 {
				kept = append(kept, p)
			}
		}
		var want, got []order.Place
		for _, i := range o.Sort(trial, all) {
			if slices.Contains(kept, all[i]) {
				want = append(want, all[i])
			}
		}
		for _, i := range o.Sort(trial, kept) {
			got = append(got, kept[i])
		}
		if !slices.Equal(got, want) {
			t.Fatalf("trial %d: the rest came as %v, was %v", trial, got, want)
		}
	}
}
