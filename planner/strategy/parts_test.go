package strategy_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// planned is a step of several sources with images, balanced on a mesh of two
// pipeline stages.
func planned(t testing.TB) (batch, strategy.Input, *strategy.Result) {
	b := draw(t, 8, 96, 512, 105, true)
	in := b.input(mesh.Sizes{DP: 8, CP: 1, PP: 2, TP: 2}, 2)
	plan := vision(model(t, "quadratic"), model(t, "vit-2b"), "world", 1, strategy.Balance{Level: strategy.Interleaved})
	r, err := new(strategy.Runner).Run(plan, in)
	if err != nil {
		t.Fatal(err)
	}
	return b, in, r
}

// TestConstructorParts: the parts of constructors hold each row once, with its samples, in the
// order of delivery.
func TestConstructorParts(t *testing.T) {
	b, in, r := planned(t)
	g, err := r.Graph(dgraph.Text, b.buf)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[uint32]bool{}
	for _, buckets := range [][]uint32{{5, 1}, {0}, {2, 3, 4, 3}, {6, 7, 8, 99}} {
		p := r.Part(buckets)
		at := 0
		for k, row := range p.Rows {
			if rows[row] || !slices.Contains(buckets, p.Rank[k]) {
				t.Fatalf("buckets %v: row %d of rank %d is there again", buckets, row, p.Rank[k])
			}
			rows[row] = true
			if int32(p.Rank[k]) != r.Rank[row] || int32(p.Microbatch[k]) != r.Microbatch[row] || int32(p.Position[k]) != r.Position[row] {
				t.Fatalf("row %d is at another place than in the plan", row)
			}
			if k > 0 && place3(p, k-1) >= place3(p, k) {
				t.Fatalf("buckets %v: row %d is delivered after row %d", buckets, row, p.Rows[k-1])
			}
			for n, i := range g.Samples(int(row)) {
				block := p.Blocks[p.SampleBlock[at+n]]
				got := dgraph.Ref{Source: block.Source, Seq: block.Seq, Index: int32(p.SampleIndex[at+n])}
				if got != b.buf.Ref(int(i)) || int32(p.SampleLength[at+n]) != b.buf.Tokens[i] || int(p.RowSamples[k]) != len(g.Samples(int(row))) {
					t.Fatalf("row %d has sample %v, want %v", row, got, b.buf.Ref(int(i)))
				}
			}
			at += int(p.RowSamples[k])
		}
		if at != len(p.SampleIndex) || at != len(p.SampleBlock) {
			t.Fatalf("%d samples in rows, %d in all", at, len(p.SampleIndex))
		}
	}
	if len(rows) != in.Shape.Rows {
		t.Errorf("constructors have %d rows, want %d", len(rows), in.Shape.Rows)
	}
}

// TestRowsOfManyBlocks: what a result says of the samples of each row is what the buffer has of them, however
// sources and blocks follow each other, and a runner may plan a smaller step after a larger one.
func TestRowsOfManyBlocks(t *testing.T) {
	var runner strategy.Runner
	plan, err := strategy.Set{"own": text(model(t, "quadratic"), 1, strategy.Balance{Level: strategy.Interleaved})}.Named("own")
	if err != nil {
		t.Fatal(err)
	}
	for seed, rows := range []int{64, 16, 32} {
		b, rng := draw(t, uint64(seed), rows, 256, 105, true), rand.New(rand.NewPCG(uint64(seed), 5))
		b.buf.ImageOffsets, b.buf.Patches = nil, nil
		for i := range b.buf.Seq {
			b.buf.Source[i], b.buf.Seq[i] = rng.Int32N(7), rng.Int64N(3)
		}
		r, err := runner.Run(plan, b.input(mesh.Sizes{DP: 4, CP: 1, PP: 1, TP: 1}, 1))
		if err != nil {
			t.Fatal(err)
		}
		for row := range r.Rank {
			said, samples := r.Row(row), r.Samples(row)
			if len(said) != len(samples) {
				t.Fatalf("row %d has %d samples, and %d are described", row, len(samples), len(said))
			}
			for k, i := range samples {
				block := r.Blocks()[said[k].Block]
				got := dgraph.Ref{Source: block.Source, Seq: block.Seq, Index: int32(said[k].Index)}
				if got != b.buf.Ref(int(i)) || int32(said[k].Tokens) != b.buf.Tokens[i] || r.RowOf[i] != int32(row) {
					t.Fatalf("row %d has sample %v of %d tokens, want %v of %d", row, got, said[k].Tokens, b.buf.Ref(int(i)), b.buf.Tokens[i])
				}
			}
		}
	}
}

// place3 orders rows by microbatch, rank and position.
func place3(p strategy.Part, k int) uint64 {
	return uint64(p.Microbatch[k])<<40 | uint64(p.Rank[k])<<20 | uint64(p.Position[k])
}

// TestPartsInOrder: in the order of packing a part is the rows of its ranks by number,
// which is what constructors got before there were strategies.
func TestPartsInOrder(t *testing.T) {
	b := draw(t, 3, 24, 256, 90, true)
	in := b.input(mesh.Sizes{DP: 4, CP: 1, PP: 1, TP: 1}, 2)
	r, err := new(strategy.Runner).Run(strategy.InOrder, in)
	if err != nil {
		t.Fatal(err)
	}
	var want []uint32
	for row := range uint32(24) {
		if rank := row / 2 % 4; rank == 1 || rank == 2 {
			want = append(want, row)
		}
	}
	p := r.Part([]uint32{2, 1})
	if !slices.Equal(p.Rows, want) {
		t.Errorf("got rows %v, want %v", p.Rows, want)
	}
	if again := r.Part([]uint32{1, 2}); !reflect.DeepEqual(p, again) {
		t.Error("another part for the same ranks")
	}
}
