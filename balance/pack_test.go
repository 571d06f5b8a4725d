package balance_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/balance"
)

func TestPackEdges(t *testing.T) {
	for _, test := range []struct {
		name     string
		lengths  []int32
		first    int
		capacity int32
		bins     int
		bin      []int32
		used     int
	}{
		{"nothing", nil, 0, 10, 0, []int32{}, 0},
		{"nothing in three bins", nil, 0, 10, 3, []int32{}, 0},
		{"one full", []int32{10}, 0, 10, 0, []int32{0}, 1},
		{"capacity of one token", []int32{1, 1, 1}, 0, 1, 2, []int32{0, 1, -1}, 2},
		{"exact fit before larger room", []int32{7, 5, 3}, 0, 10, 0, []int32{0, 1, 0}, 2},
		{"lowest bin among equals", []int32{6, 6, 6, 4}, 0, 10, 0, []int32{0, 1, 2, 0}, 3},
		{"equal items by index", []int32{5, 5, 5}, 0, 10, 0, []int32{0, 0, 1}, 2},
		{"carried over items go first", []int32{2, 3, 10}, 2, 10, 1, []int32{0, 0, -1}, 1},
		{"carried over items keep their order", []int32{4, 8, 6}, 3, 10, 0, []int32{0, 1, 0}, 2},
		{"a smaller item still fits after one that does not", []int32{9, 9, 1}, 0, 10, 1, []int32{0, -1, 0}, 1},
		{"more bins than items", []int32{9, 9}, 0, 10, 64, []int32{0, 1}, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			var p balance.Packer
			bin, used, err := packAll(t, &p, test.lengths, test.first, test.capacity, test.bins)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(bin, test.bin) || used != test.used {
				t.Errorf("Pack = %v in %d bins, want %v in %d", bin, used, test.bin, test.used)
			}
		})
	}
}

// packAll packs items of which any number may be left over, and returns the number of
// bins used, too.
func packAll(t testing.TB, p *balance.Packer, lengths []int32, first int, capacity int32, bins int) (bin []int32, used int, err error) {
	t.Helper()
	bin, n, err := p.Pack(lengths, first, capacity, bins, len(lengths))
	if err == nil && n != len(lengths) {
		t.Fatalf("%d of %d items went back, and any number may be left over", len(lengths)-n, len(lengths))
	}
	for _, b := range bin {
		used = max(used, int(b)+1)
	}
	return bin, used, err
}

func TestPackRefuses(t *testing.T) {
	var p balance.Packer
	for _, lengths := range [][]int32{{5, 11, 12}, {5, 0, 5}, {5, -3, 5}} {
		_, _, err := packAll(t, &p, lengths, 0, 10, 0)
		item, ok := errors.AsType[*balance.ItemError](err)
		if !ok || item.Index != 1 || item.Length != lengths[1] || item.Capacity != 10 {
			t.Errorf("Pack(%v) with capacity 10: got %v, want an ItemError for item 1", lengths, err)
		}
	}
	for _, test := range []struct {
		first    int
		capacity int32
	}{{-1, 10}, {3, 10}, {0, 0}, {0, -1}, {0, balance.MaxCapacity + 1}} {
		if _, _, err := packAll(t, &p, []int32{1, 1}, test.first, test.capacity, 0); err == nil {
			t.Errorf("Pack of two items with first %d and capacity %d: no error", test.first, test.capacity)
		}
	}
	if _, _, err := packAll(t, &p, []int32{balance.MaxCapacity}, 0, balance.MaxCapacity, 0); err != nil {
		t.Errorf("Pack at the largest capacity: %v", err)
	}
}

// TestPackNearOptimum compares with the best packing of few items, found by
// trying all.
func TestPackNearOptimum(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	var p balance.Packer
	missed := 0
	const rounds = 2000
	for range rounds {
		capacity := 5 + rng.Int32N(60)
		lengths := anyLengths(rng, 1+rng.IntN(9), capacity)
		_, used, err := packAll(t, &p, lengths, 0, capacity, 0)
		if err != nil {
			t.Fatal(err)
		}
		optimum := fewestBins(lengths, capacity)
		if bound := lowerBound(lengths, capacity); bound > optimum {
			t.Fatalf("lower bound %d of %v at capacity %d, but %d bins do", bound, lengths, capacity, optimum)
		}
		if used < optimum || used > optimum+1 {
			t.Fatalf("Pack(%v) at capacity %d uses %d bins, optimum %d", lengths, capacity, used, optimum)
		}
		missed += used - optimum
	}
	if missed > rounds/100 {
		t.Errorf("the optimum was missed %d times in %d, want at most one in 100", missed, rounds)
	}
}

// fewestBins tries every bin for every item.
func fewestBins(lengths []int32, capacity int32) int {
	best := len(lengths)
	var room []int32
	var place func(i int)
	place = func(i int) {
		if len(room) >= best {
			return
		}
		if i == len(lengths) {
			best = len(room)
			return
		}
		for b := range room {
			if room[b] >= lengths[i] {
				room[b] -= lengths[i]
				place(i + 1)
				room[b] += lengths[i]
			}
		}
		room = append(room, capacity-lengths[i])
		place(i + 1)
		room = room[:len(room)-1]
	}
	place(0)
	return best
}

// anyLengths draws lengths of one of several shapes; few distinct values make
// many equal rooms, which is where ties are.
func anyLengths(rng *rand.Rand, n int, capacity int32) []int32 {
	lengths := make([]int32, n)
	shape, distinct := rng.IntN(4), 1+rng.Int32N(5)
	for i := range lengths {
		switch shape {
		case 0: // anything
			lengths[i] = 1 + rng.Int32N(capacity)
		case 1: // a few values
			lengths[i] = 1 + (capacity-1)/distinct*rng.Int32N(distinct)
		case 2: // small
			lengths[i] = 1 + rng.Int32N(max(1, capacity/8))
		case 3: // above half: one to a bin
			lengths[i] = capacity - rng.Int32N(max(1, capacity/2))
		}
	}
	return lengths
}

// TestPackLaws replays large results: nothing lost or doubled (one bin an item,
// by type), the capacity never broken, Unplaced only where nothing fits, used
// bins first, equal over runs and over Packers.
func TestPackLaws(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var reused balance.Packer
	for range 16 {
		capacity := int32(64 + rng.IntN(32768))
		lengths := anyLengths(rng, 20000, capacity)
		first := rng.IntN(2) * rng.IntN(2000)
		bins := rng.IntN(2) * (1 + rng.IntN(4000))
		bin, used, err := packAll(t, &reused, lengths, first, capacity, bins)
		if err != nil {
			t.Fatal(err)
		}
		checkPacked(t, lengths, first, capacity, bins, bin, used)

		var fresh balance.Packer
		again, usedAgain, err := packAll(t, &fresh, lengths, first, capacity, bins)
		if err != nil || usedAgain != used || !slices.Equal(again, bin) {
			t.Fatalf("a second run gave another result (error %v)", err)
		}
	}
}

func checkPacked(t testing.TB, lengths []int32, first int, capacity int32, bins int, bin []int32, used int) {
	t.Helper()
	if len(bin) != len(lengths) {
		t.Fatalf("%d results for %d items", len(bin), len(lengths))
	}
	limit := bins
	if limit <= 0 {
		limit = len(lengths)
	}
	if used > limit {
		t.Fatalf("%d bins used, %d allowed", used, limit)
	}
	room := slices.Repeat([]int32{capacity}, limit)
	put := func(i int) {
		if b := bin[i]; b != balance.Unplaced {
			if b < 0 || int(b) >= used {
				t.Fatalf("item %d is in bin %d, of %d used", i, b, used)
			}
			if room[b] -= lengths[i]; room[b] < 0 {
				t.Fatalf("bin %d holds more than %d tokens", b, capacity)
			}
		}
	}
	for i := range first {
		best := int32(balance.Unplaced)
		for b, r := range room {
			if r >= lengths[i] && (best < 0 || r < room[best]) {
				best = int32(b)
			}
		}
		if bin[i] != best {
			t.Fatalf("item %d, one of the first, is in bin %d; best fit is %d", i, bin[i], best)
		}
		put(i)
	}
	shortest := capacity + 1 // that was left out
	for i := first; i < len(lengths); i++ {
		if put(i); bin[i] == balance.Unplaced {
			shortest = min(shortest, lengths[i])
		}
	}
	if limit > 0 && slices.Max(room) >= shortest {
		t.Fatalf("an item of length %d was left out although a bin has room for %d", shortest, slices.Max(room))
	}
	for b, r := range room {
		if (r < capacity) != (b < used) {
			t.Fatalf("bin %d has room for %d of %d tokens, with %d bins used", b, r, capacity, used)
		}
	}
}

func TestPackAllocatesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	lengths := anyLengths(rng, 5000, 8192)
	var p balance.Packer
	allocs := testing.AllocsPerRun(10, func() {
		if _, _, err := packAll(t, &p, lengths, 10, 8192, 0); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations a call in steady state, want 0", allocs)
	}
}
