package balance

import (
	"math/rand/v2"
	"testing"
)

// TestSumsFill: of the items looked at, those that fill the room best are taken, as
// trying all subsets says.
func TestSumsFill(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var s sums
	var sorted byLength
	for range 2000 {
		capacity := int32(1 + rng.IntN(500))
		lengths := make([]int32, 1+rng.IntN(10))
		for i := range lengths {
			lengths[i] = 1 + rng.Int32N(capacity)
		}
		room := rng.Int32N(capacity + 1)
		best := int32(0)
		for subset := range 1 << len(lengths) {
			sum := int32(0)
			for i, n := range lengths {
				sum += n * int32(subset>>i&1)
			}
			if sum <= room {
				best = max(best, sum)
			}
		}
		sorted.reset(lengths, 0, capacity)
		bin := make([]int32, len(lengths))
		for i := range bin {
			bin[i] = Unplaced
		}
		if !s.reset(&sorted, capacity) || !s.fill(lengths, bin, room, 0) {
			t.Fatalf("%v in %d: the work was not done", lengths, room)
		}
		got := int32(0)
		for i, b := range bin {
			if b == 0 {
				got += lengths[i]
			}
		}
		if got != best {
			t.Fatalf("%v in a room of %d: filled with %d, %d is the most", lengths, room, got, best)
		}
	}
}

// TestSumsRule: the rule places all items, those that were carried first included,
// and no bin has more than its capacity.
func TestSumsRule(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	var p Packer
	for range 500 {
		capacity := int32(64 + rng.IntN(2000))
		lengths := make([]int32, 1+rng.IntN(300))
		for i := range lengths {
			lengths[i] = 1 + rng.Int32N(capacity)
		}
		first, bins := rng.IntN(min(len(lengths), 8)), 1+rng.IntN(len(lengths))
		p.sorted.reset(lengths, first, capacity)
		tried := p.sorted.space(capacity) <= sum(lengths[first:])
		got := p.pack(subsetSums, lengths, first, capacity, bins)
		load, left := make([]int32, bins), 0
		for i, b := range p.bin {
			if b == Unplaced {
				left++
				continue
			}
			if load[b] += lengths[i]; load[b] > capacity || int(b) >= got.used {
				t.Fatalf("bin %d of %d has %d tokens of %d", b, got.used, load[b], capacity)
			}
		}
		if left != got.items || tried && left > 0 && got.used < bins {
			t.Fatalf("%d items are left in %d of %d bins, %d by the outcome", left, got.used, bins, got.items)
		}
	}
	if s := (&sums{}); s.reset(&byLength{items: make([]int32, sumsWords)}, 64) {
		t.Error("more items were taken than the work limit allows")
	}
}
