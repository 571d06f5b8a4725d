package control

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// TestDeal: a table says who reads what; places behind it, and sources that it does not know, are dealt in turn.
func TestDeal(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		table           [][]int
		places, sources int
		want            [][]int
	}{
		{nil, 2, 3, [][]int{{0}, {1}, {0}}},
		{nil, 5, 2, [][]int{{0, 2, 4}, {1, 3}}},
		{[][]int{{1}, {0, 2}}, 3, 2, [][]int{{1}, {0, 2}}},
		{[][]int{{1}, {0, 2}}, 1, 2, [][]int{{0}, {0}}}, // the others are not there yet
		{[][]int{{1}, {0}}, 5, 2, [][]int{{1, 2, 4}, {0, 3}}},
		{[][]int{{1}, {0}}, 2, 4, [][]int{{1}, {0}, {0}, {1}}}, // two joined
	} {
		if got := deal(x.table, false, x.places, x.sources).bySource; !reflect.DeepEqual(got, x.want) {
			t.Errorf("%v, %d places, %d sources: %v, want %v", x.table, x.places, x.sources, got, x.want)
		}
	}
	for _, x := range []struct {
		table           [][]int
		places, sources int
		want            [][]int
	}{ // the same if the table is exact
		{[][]int{{0, 1}}, 2, 3, [][]int{{0, 1}, {1}, {0}}},
		{[][]int{{0}}, 2, 2, [][]int{{0}, {0}}},                     // place 1 drains
		{[][]int{{3}, {0}}, 5, 4, [][]int{{3}, {0}, {0}, {3}}},      // nobody has to read anything at 1, 2 and 4
		{[][]int{{3}, nil, {0}}, 2, 3, [][]int{{0}, {0}, {0}}},      // place 3 is not there
		{[][]int{{3}, nil}, 2, 4, [][]int{{0}, {1}, {0}, {1}}},      // nor is any
		{[][]int{{1}, {1}, {1}}, 2, 4, [][]int{{1}, {1}, {1}, {1}}}, // place 0 drains
	} {
		if got := deal(x.table, true, x.places, x.sources).bySource; !reflect.DeepEqual(got, x.want) {
			t.Errorf("%v, exact, %d places, %d sources: %v, want %v", x.table, x.places, x.sources, got, x.want)
		}
	}
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 3))
		places, sources := 1+rng.IntN(9), 1+rng.IntN(9)
		table := make([][]int, rng.IntN(10))
		for i := range table {
			for at := range 8 {
				if rng.IntN(3) == 0 {
					table[i] = append(table[i], at)
				}
			}
		}
		d := deal(table, rng.IntN(2) == 0, places, sources)
		for source, of := range d.bySource {
			if len(of) == 0 || !slices.IsSorted(of) || of[len(of)-1] >= places {
				t.Fatalf("seed %d: source %d is read by %v of %d places", seed, source, of, places)
			}
			if g := d.groups[of[0]]; g < 0 || g > source || g >= sources || d.bySource[g][0] != of[0] {
				t.Fatalf("seed %d: source %d is in group %d", seed, source, g)
			}
		}
	}
}

// pass lets time pass. Now and then others read the sources from then on.
func (w *world) pass(time Millis) {
	w.apply(Tick{w.core.now + time})
	rng := rand.New(rand.NewPCG(uint64(w.core.now), 5)) // not the world's: seeds that found something go on finding it
	if rng.IntN(3) > 0 {
		return
	}
	table := make([][]int, rng.IntN(len(w.core.sources.indexed)+1))
	for i := range table {
		for at := range len(w.core.members.places) + 1 {
			if rng.IntN(3) == 0 {
				table[i] = append(table[i], at)
			}
		}
	}
	w.apply(Redeal{table})
}
