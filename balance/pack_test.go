package balance_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/balance"
)

// packNaively is the rule of Packer.Pack in its plainest form, O(n × bins).
func packNaively(lengths []int32, first int, capacity int32, bins int) ([]int32, int) {
	if bins <= 0 {
		bins = len(lengths)
	}
	room := slices.Repeat([]int32{capacity}, bins)
	bin := make([]int32, len(lengths))
	for _, i := range turns(lengths, first) {
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
	used := 0
	for used < bins && room[used] < capacity {
		used++
	}
	return bin, used
}

// turns returns the order in which items are placed.
func turns(lengths []int32, first int) []int {
	order := make([]int, len(lengths))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order[first:], func(a, b int) int { return int(lengths[b]) - int(lengths[a]) })
	return order
}

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
			bin, used, err := p.Pack(test.lengths, test.first, test.capacity, test.bins)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(bin, test.bin) || used != test.used {
				t.Errorf("Pack = %v in %d bins, want %v in %d", bin, used, test.bin, test.used)
			}
		})
	}
}

func TestPackRefuses(t *testing.T) {
	var p balance.Packer
	for _, lengths := range [][]int32{{5, 11, 12}, {5, 0, 5}, {5, -3, 5}} {
		_, _, err := p.Pack(lengths, 0, 10, 0)
		item, ok := errors.AsType[*balance.ItemError](err)
		if !ok || item.Index != 1 || item.Length != lengths[1] || item.Capacity != 10 {
			t.Errorf("Pack(%v) with capacity 10: got %v, want an ItemError for item 1", lengths, err)
		}
	}
	for _, test := range []struct {
		first    int
		capacity int32
	}{{-1, 10}, {3, 10}, {0, 0}, {0, -1}, {0, balance.MaxCapacity + 1}} {
		if _, _, err := p.Pack([]int32{1, 1}, test.first, test.capacity, 0); err == nil {
			t.Errorf("Pack of two items with first %d and capacity %d: no error", test.first, test.capacity)
		}
	}
	if _, _, err := p.Pack([]int32{balance.MaxCapacity}, 0, balance.MaxCapacity, 0); err != nil {
		t.Errorf("Pack at the largest capacity: %v", err)
	}
}

// TestPackEqualsOracle is the law that the data structure decides nothing: the
// result is the documented rule's, at every shape of input.
func TestPackEqualsOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var p balance.Packer // one for all, so that stale scratch would show
	for round := range 3000 {
		capacity := []int32{1, 2, 7, 63, 64, 65, 200, 4096, 4097, 40000, 270000}[rng.IntN(11)]
		lengths := anyLengths(rng, rng.IntN(150), capacity)
		first := 0
		if len(lengths) > 0 && rng.IntN(2) == 0 {
			first = rng.IntN(len(lengths) + 1)
		}
		bins := rng.IntN(2) * rng.IntN(len(lengths)+3)
		got, used, err := p.Pack(lengths, first, capacity, bins)
		if err != nil {
			t.Fatal(err)
		}
		want, wantUsed := packNaively(lengths, first, capacity, bins)
		if !slices.Equal(got, want) || used != wantUsed {
			t.Fatalf("round %d: Pack(%v, %d, %d, %d)\n= %v in %d bins,\nwant %v in %d",
				round, lengths, first, capacity, bins, got, used, want, wantUsed)
		}
	}
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
	for range 12 {
		capacity := int32(64 + rng.IntN(32768))
		lengths := anyLengths(rng, 20000, capacity)
		first := rng.IntN(2000)
		bins := rng.IntN(2) * (1 + rng.IntN(4000))
		bin, used, err := reused.Pack(lengths, first, capacity, bins)
		if err != nil {
			t.Fatal(err)
		}
		checkPacked(t, lengths, first, capacity, bins, bin, used)

		var fresh balance.Packer
		again, usedAgain, err := fresh.Pack(lengths, first, capacity, bins)
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
	largest := capacity // room of the emptiest bin; rooms only shrink
	for _, i := range turns(lengths, first) {
		if b := bin[i]; b != balance.Unplaced {
			if b < 0 || int(b) >= used {
				t.Fatalf("item %d is in bin %d, of %d used", i, b, used)
			}
			if room[b] -= lengths[i]; room[b] < 0 {
				t.Fatalf("bin %d holds more than %d tokens", b, capacity)
			}
			continue
		}
		if largest >= lengths[i] {
			if largest = slices.Max(room); largest >= lengths[i] {
				t.Fatalf("item %d of length %d was left out although a bin had room for %d", i, lengths[i], largest)
			}
		}
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
		if _, _, err := p.Pack(lengths, 10, 8192, 0); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations a call in steady state, want 0", allocs)
	}
}
