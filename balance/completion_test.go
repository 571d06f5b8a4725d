package balance

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// packNaively is best fit decreasing in its plainest form, O(n × bins).
func packNaively(lengths []int32, first int, capacity int32, bins int) []int32 {
	order := make([]int, len(lengths))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order[first:], func(a, b int) int { return int(lengths[b]) - int(lengths[a]) })
	room := slices.Repeat([]int32{capacity}, bins)
	bin := make([]int32, len(lengths))
	for _, i := range order {
		best := -1
		for b, r := range room {
			if r >= lengths[i] && (best < 0 || r < room[best]) {
				best = b
			}
		}
		bin[i] = int32(best)
		if best >= 0 {
			room[best] -= lengths[i]
		}
	}
	return bin
}

var someCapacities = []int32{1, 2, 7, 63, 64, 65, 200, 4096, 4097, 40000, 270000}

// someLengths draws lengths over a part of the range, some of them often.
func someLengths(rng *rand.Rand, capacity int32) []int32 {
	lengths := make([]int32, rng.IntN(150))
	step := 1 + rng.Int32N(max(1, capacity/8))
	most := 1 + rng.Int32N(capacity)
	for i := range lengths {
		lengths[i] = 1 + rng.Int32N(most)/step*step
	}
	return lengths
}

// TestBestFitEqualsOracle is the law that the data structure decides nothing.
func TestBestFitEqualsOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var p Packer // one for all, so that stale scratch would show
	for range 3000 {
		capacity := someCapacities[rng.IntN(len(someCapacities))]
		lengths := someLengths(rng, capacity)
		first, bins := rng.IntN(len(lengths)+1), 1+rng.IntN(len(lengths)+1)
		p.sorted.reset(lengths, first, capacity)
		p.pack(bestFit, lengths, first, capacity, bins)
		if want := packNaively(lengths, first, capacity, bins); !slices.Equal(p.bin, want) {
			t.Fatalf("best fit of %v, %d first, in %d bins of %d:\n%v, want\n%v", lengths, first, bins, capacity, p.bin, want)
		}
	}
}

// TestPairEqualsOracle compares the search of 64 lengths at a time with two loops.
func TestPairEqualsOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var s byLength
	var c completion
	found := 0
	for range 3000 {
		capacity := someCapacities[rng.IntN(8)] // as many words as a search may look at
		lengths := append(someLengths(rng, capacity), capacity)
		s.reset(lengths, 0, capacity)
		c.reset(&s, make([]int32, len(lengths)), capacity)
		sum := 1 + rng.Int32N(2*capacity)
		want := int32(-1)
		for i, a := range lengths {
			for k, b := range lengths {
				if i != k && a >= b && a+b == sum {
					want = max(want, a)
				}
			}
		}
		if got := c.pair(sum); got != want {
			t.Fatalf("pair(%d) = %d, want %d, of lengths %v", sum, got, want, lengths)
		}
		if want > 0 {
			found++
		}
	}
	if found < 100 {
		t.Errorf("the inputs had only %d pairs", found)
	}
}

// TestExactlyFindsTriples fills a bin exactly where one, two or three items do,
// as long as there are few lengths to try.
func TestExactlyFindsTriples(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var s byLength
	var c completion
	for range 3000 {
		lengths := make([]int32, 3+rng.IntN(triples-2))
		for i := range lengths {
			lengths[i] = 1 + rng.Int32N(300)
		}
		const capacity = 1000
		s.reset(lengths, 0, capacity)
		bin := slices.Repeat([]int32{Unplaced}, len(lengths))
		c.reset(&s, bin, capacity)
		i, j, k := 0, 1+rng.IntN(len(lengths)-2), len(lengths)-1
		sum := lengths[i] + lengths[j] + lengths[k]
		if !c.exactly(sum, 0) {
			t.Fatalf("no items of %v fill %d, but three do", lengths, sum)
		}
		for i, b := range bin {
			if b == 0 {
				sum -= lengths[i]
			}
		}
		if sum != 0 {
			t.Fatalf("the items of %v taken miss the sum by %d", lengths, sum)
		}
	}
}

func TestBitset(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var s, copied bitset
	for range 300 {
		size := 1 + rng.Int32N([]int32{64, 65, 4096, 5000, 300000}[rng.IntN(5)])
		s.reset(size)
		members := make([]bool, size)
		for range rng.IntN(40) {
			i := rng.Int32N(size)
			if members[i] = rng.IntN(3) > 0; members[i] {
				s.add(i)
			} else {
				s.remove(i)
			}
		}
		copied.copy(&s)
		for range 20 {
			i := rng.Int32N(size)
			prev, next := i, i
			for prev >= 0 && !members[prev] {
				prev--
			}
			for next < size && !members[next] {
				next++
			}
			if next == size {
				next = -1
			}
			if s.prev(i) != prev || s.next(i) != next || copied.next(i) != next {
				t.Fatalf("around %d of %d: %d and %d, want %d and %d", i, size, s.prev(i), s.next(i), prev, next)
			}
			from := i - 64 - rng.Int32N(64)
			var window uint64
			for k := range int32(64) {
				if at := from + k; at >= 0 && at < size && members[at] {
					window |= 1 << k
				}
			}
			if got := s.window(from); got != window {
				t.Fatalf("window(%d) of %d = %x, want %x", from, size, got, window)
			}
		}
	}
}
