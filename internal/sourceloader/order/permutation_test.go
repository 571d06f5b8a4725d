package order_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/order"
)

// The constants of the golden tests in this package were computed
// independently, in Python, from the doc comments alone:
//
//	def key(seed, source, purpose, epoch):
//	    text = pack('<QQQ', seed, epoch, len(source)) + source + purpose
//	    return int.from_bytes(sha256(text).digest()[:8], 'little')
//	def mix(x):   # SplitMix64, all modulo 2^64
//	    x += 0x9e3779b97f4a7c15; x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
//	    x = (x ^ x>>27) * 0x94d049bb133111eb; return x ^ x>>31
//	def hash(k, x): return mix(mix(x + k) ^ rotate_left(k, 32))
//	def at(n, k, i):
//	    half = (bit_length(n-1) + 1) // 2; mask = 2**half - 1
//	    while True:
//	        left, right = i >> half, i & mask
//	        for r in range(6): left, right = right, left ^ (hash(k, right<<8 | r) & mask)
//	        i = left << half | right
//	        if i < n: return i
//
// They decide the order of every job: changing one changes every batch, and needs a
// new version of the resume token.

func TestKeyGolden(t *testing.T) {
	k := order.NewKey(42, "web", "chunks", 3)
	if k != 0x215d77f9a44f41ed {
		t.Errorf("key %#x", uint64(k))
	}
	if got := k.Hash(0); got != 0x5a18b308ab563425 {
		t.Errorf("Hash(0) = %#x", got)
	}
	if got := k.Hash(12345); got != 0x8d4cec8334c3f92c {
		t.Errorf("Hash(12345) = %#x", got)
	}
}

func TestKeysDiffer(t *testing.T) {
	seen := map[order.Key]string{}
	for _, seed := range []uint64{0, 1, 1 << 63} {
		for _, source := range []string{"", "a", "ab", "ac"} {
			// "a"+"bchunks" and "ab"+"chunks" are one text, not one key.
			for _, purpose := range []string{"chunks", "bchunks", "samples"} {
				for _, epoch := range []int64{0, 1, 2} {
					k := order.NewKey(seed, source, purpose, epoch)
					name := fmt.Sprint(seed, source, purpose, epoch)
					if other, ok := seen[k]; ok {
						t.Errorf("%s and %s have the same key", name, other)
					}
					seen[k] = name
				}
			}
		}
	}
}

func TestPermutationGolden(t *testing.T) {
	k := order.NewKey(42, "web", "chunks", 3)
	for _, want := range [][]int64{
		{0},
		{0, 1},
		{5, 8, 7, 2, 4, 0, 6, 3, 9, 1},
		{12, 3, 1, 8, 11, 13, 16, 0, 5, 7, 10, 9, 15, 2, 6, 4, 14},
	} {
		if got := images(order.NewPermutation(int64(len(want)), k), len(want)); !slices.Equal(got, want) {
			t.Errorf("n = %d: %v, want %v", len(want), got, want)
		}
	}
	for n, want := range map[int64][4]int64{
		1_000_000_000: {421764564, 168557506, 283409706, 918614612},
		1 << 40:       {559771281216, 829479629804, 322291782332, 73529612993},
	} {
		p := order.NewPermutation(n, k)
		if got := [4]int64{p.At(0), p.At(1), p.At(n / 2), p.At(n - 1)}; got != want {
			t.Errorf("n = %d: %v, want %v", n, got, want)
		}
	}
}

func images(p order.Permutation, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = p.At(int64(i))
	}
	return out
}

func TestPermutationIsBijection(t *testing.T) {
	seen := make([]int, 2000)
	for n := 1; n <= len(seen); n++ {
		p := order.NewPermutation(int64(n), order.Key(uint64(n)*0x9e3779b97f4a7c15))
		for i := range n {
			x := p.At(int64(i))
			if x < 0 || x >= int64(n) {
				t.Fatalf("n = %d: %d goes to %d", n, i, x)
			}
			if seen[x] == n {
				t.Fatalf("n = %d: two places go to %d", n, x)
			}
			seen[x] = n
		}
	}
}

// TestPermutationOfManyChunks checks range and distinctness on samples of sizes
// too large to enumerate, at and next to powers of two and of four.
func TestPermutationOfManyChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int64{1<<20 - 1, 1 << 20, 1<<20 + 1, 1_000_000_000, 1<<31 + 7, 1<<40 - 1, 1 << 40, 1<<40 + 1, 1<<41 + 1, 1<<62 + 1} {
		p := order.NewPermutation(n, order.Key(rng.Uint64()))
		from := map[int64]int64{}
		for range 3000 {
			i := rng.Int64N(n)
			x := p.At(i)
			if x < 0 || x >= n {
				t.Fatalf("n = %d: %d goes to %d", n, i, x)
			}
			if other, ok := from[x]; ok && other != i {
				t.Fatalf("n = %d: %d and %d both go to %d", n, i, other, x)
			}
			from[x] = i
		}
	}
}

// TestPermutationIsUniform compares, over many keys, where the first and the
// last place go with the even spread of a random permutation. The keys are
// fixed, so the test cannot fail by chance: the limit is the 99.9 % quantile of
// chi-square for the largest of the tables, and small ones are far below theirs.
func TestPermutationIsUniform(t *testing.T) {
	for n, limit := range map[int64]float64{
		2: 10.8, 3: 13.8, 5: 18.5, 7: 22.5, 16: 37.7, 17: 39.3, 100: 149, 256: 331,
	} {
		keys := 200 * int(n)
		for _, at := range []int64{0, n - 1} {
			counts := make([]float64, n)
			for epoch := range keys {
				counts[order.NewPermutation(n, order.NewKey(9, "s", "chunks", int64(epoch))).At(at)]++
			}
			chi, even := 0.0, float64(keys)/float64(n)
			for _, c := range counts {
				chi += (c - even) * (c - even) / even
			}
			if chi > limit {
				t.Errorf("n = %d: place %d has chi-square %.1f over %d keys, want below %.1f", n, at, chi, keys, limit)
			}
		}
	}
}

// TestPermutationMixesNeighbours counts how often neighbours stay neighbours,
// which in a random permutation of n happens about twice.
func TestPermutationMixesNeighbours(t *testing.T) {
	const n = 100_000
	p := order.NewPermutation(n, order.NewKey(1, "s", "chunks", 0))
	together, last := 0, p.At(0)
	for i := int64(1); i < n; i++ {
		x := p.At(i)
		if d := x - last; d == 1 || d == -1 {
			together++
		}
		last = x
	}
	if together > 10 {
		t.Errorf("%d pairs of neighbours stayed together, about 2 are expected", together)
	}
}

func TestPermutationTakesNoMemory(t *testing.T) {
	var sum int64
	allocs := testing.AllocsPerRun(100, func() {
		p := order.NewPermutation(1<<40, order.Key(7))
		sum += p.At(12345)
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func BenchmarkPermutationAt(b *testing.B) {
	p := order.NewPermutation(1_000_000_000, order.Key(7))
	i := int64(0)
	for b.Loop() {
		i = p.At(i)
	}
}
