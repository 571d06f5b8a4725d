package cut

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// picture is an image of a step as a naive computation sees it.
type picture struct{ encoder, microbatch, rank, row, document, number int }

// naiveEncoder is the rank that an image comes to which is the n-th of its step: the
// buckets at the axis are dealt in turn, and their first rank encodes. It walks over
// all ranks; every set of indices at the axis and those above it is a bucket.
func naiveEncoder(tree *mesh.Tree, axis string, n int) int {
	var first []int // rank of each bucket, by the order of the indices
	m := tree.Sizes()
	last := map[string]int{"dp": 1, "cp": 2, "pp": 3, "tp": 4}[axis]
	sizes := []int{m.DP, m.CP, m.PP, m.TP}
	if axis == "world" {
		for rank := range tree.World() {
			first = append(first, rank)
		}
		return first[n%len(first)]
	}
	var walk func(at []int)
	walk = func(at []int) {
		if len(at) < last {
			for i := range sizes[len(at)] {
				walk(append(slices.Clone(at), i))
			}
			return
		}
		least := -1
		for rank := range tree.World() {
			c, _ := tree.Coordinates(rank)
			if slices.Equal([]int{c.DP, c.CP, c.PP, c.TP}[:last], at) && least < 0 {
				least = rank
			}
		}
		first = append(first, least)
	}
	walk(nil)
	return first[n%len(first)]
}

// imageStep is a step of rows of two samples with up to three images each, without
// balancing, whose images are distributed over an axis; over none if it is "".
func imageStep(t *testing.T, rng *rand.Rand, tree *mesh.Tree, axis string) *plan.Step {
	rows := 2 * tree.Sizes().DP
	buf, rowOf := &dgraph.Buffer{ImageOffsets: []int32{0}}, []int32{}
	for i := range 2*rows + 3 {
		buf.Source, buf.Seq, buf.Index = append(buf.Source, 0), append(buf.Seq, 0), append(buf.Index, int32(i))
		buf.Tokens = append(buf.Tokens, 10)
		for range rng.IntN(4) {
			buf.Patches = append(buf.Patches, 4)
		}
		buf.ImageOffsets = append(buf.ImageOffsets, int32(len(buf.Patches)))
		rowOf = append(rowOf, int32(i/2))
		if i >= 2*rows {
			rowOf[i] = -1 // no room
		}
	}
	r, err := new(strategy.Runner).Run(func(s *strategy.Step) error {
		g := s.Graph(dgraph.Text)
		g.Mix(s.Schedule())
		g.Distribute("dp", 0)
		if axis != "" {
			s.Graph(dgraph.Image).Distribute(axis, 0)
			return s.Graph(dgraph.Image).Plan()
		}
		return g.Plan()
	}, strategy.Input{
		Tree: tree, Shape: strategy.Shape{Rows: rows, SequenceLength: 20, MicrobatchSize: 1, Packing: true},
		Draw: func([]uint64) (*dgraph.Buffer, []int32, error) { return buf, rowOf, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return &plan.Step{Mesh: tree, Placed: r, Buffer: buf}
}

// TestEncoders: at each axis an image comes to the rank that a naive computation
// names, every image of a row to one, with its place in that rank's microbatch.
func TestEncoders(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 9))
	for _, order := range [][]string{nil, {"dp", "pp", "cp", "tp"}, {"pp", "tp", "dp", "cp"}} {
		for _, axis := range []string{"dp", "cp", "pp", "tp", "world", ""} {
			tree, err := mesh.New(mesh.Sizes{DP: 3, CP: 2, PP: 2, TP: 2, VPP: 1, EP: 1, Order: order})
			if err != nil {
				t.Fatal(err)
			}
			s := imageStep(t, rng, tree, axis)
			got, err := placeImages(s)
			if err != nil {
				t.Fatal(err)
			}
			var want []picture
			image := 0
			for sample := range s.Buffer.Tokens {
				from, to := s.Buffer.ImagesOf(sample)
				for number := range int(to - from) {
					p := picture{row: sample / 2, document: sample % 2, number: number}
					if axis != "" {
						p.encoder = naiveEncoder(tree, axis, image)
					}
					if image++; sample/2 >= len(s.Placed.Rank) {
						continue // it waits
					}
					p.rank, p.microbatch = int(s.Placed.Rank[p.row]), int(s.Placed.Microbatch[p.row])
					if p.row = int(s.Placed.Position[p.row]); axis == "" {
						p.encoder = naiveEncoder(tree, "dp", p.rank)
					}
					want = append(want, p)
				}
			}
			var all []picture
			seen := map[[2]int]int{}
			for k, x := range got.all {
				p := picture{int(x.encoder), int(x.microbatch), int(x.rank), int(x.row), int(x.document), int(x.number)}
				all = append(all, p)
				at, _ := tree.Coordinates(p.encoder)
				key := [2]int{p.encoder, p.microbatch}
				if int(x.ordinal) != seen[key] || int(got.dp[k]) != at.DP {
					t.Errorf("%v at %q: %+v has ordinal %d of dp %d, want %d of %d", order, axis, p, x.ordinal, got.dp[k], seen[key], at.DP)
				}
				seen[key]++
			}
			slices.SortFunc(all, func(a, b picture) int { return slices.Compare(a.key(), b.key()) })
			slices.SortFunc(want, func(a, b picture) int { return slices.Compare(a.key(), b.key()) })
			if !slices.Equal(all, want) || len(want) < 12 {
				t.Errorf("%v at %q: images go to\n%+v, want\n%+v", order, axis, all, want)
			}
		}
	}
}

// key is a picture's own place.
func (p picture) key() []int {
	return []int{p.rank, p.microbatch, p.row, p.document, p.number, p.encoder}
}
