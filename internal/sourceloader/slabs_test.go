package sourceloader

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSlabs adds samples of all sizes, one of them larger than any slab, and
// wants each back as it was.
func TestSlabs(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var s slabs
	var spans []span
	var want [][]int32
	total := 0
	for i := range 2000 {
		sample := make([]int32, 1+rng.IntN(1500))
		if i == 1000 {
			sample = make([]int32, lastSlab+1)
		}
		for k := range sample {
			sample[k] = rng.Int32()
		}
		spans, want = append(spans, s.add(sample)), append(want, slices.Clone(sample))
		total += len(sample)
		clear(sample) // add keeps a copy
	}
	s.trim()
	for i, w := range want {
		if !slices.Equal(s.at(spans[i]), w) {
			t.Fatalf("sample %d of %d tokens came back changed", i, len(w))
		}
	}
	if least := int64(4 * total); s.bytes() < least || s.bytes() > least+least/8 {
		t.Errorf("%d slabs take %d bytes for %d of tokens", len(s.all), s.bytes(), least)
	}
}

// TestSlabsOfSmallBlocks checks that a block with little in it holds little.
func TestSlabsOfSmallBlocks(t *testing.T) {
	var s slabs
	s.trim()
	if s.bytes() != 0 {
		t.Errorf("no sample takes %d bytes", s.bytes())
	}
	s.add([]int32{1, 2, 3})
	s.trim()
	if s.bytes() > 100 {
		t.Errorf("three tokens take %d bytes", s.bytes())
	}
}

// TestSlabSizes: sizes are those that slabs have, without their memory.
func TestSlabSizes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for range 200 {
		var s slabs
		var sizes slabSizes
		for range rng.IntN(60) {
			n := rng.IntN(1 << rng.IntN(18))
			s.add(make([]int32, n))
			sizes.add(n)
		}
		if s.trim(); s.bytes() != sizes.bytes() {
			t.Fatalf("%d slabs take %d bytes, and their sizes say %d", len(s.all), s.bytes(), sizes.bytes())
		}
	}
}
