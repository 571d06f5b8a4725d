package balance_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/balance"
)

// anyTiles returns rows of random widths that fill slots of ranks.
func anyTiles(rng *rand.Rand, ranks, slots int, widest int32) (widths []int32) {
	for left := int32(ranks * slots); left > 0; {
		w := int32(1) << rng.IntN(bits.Len32(uint32(widest)))
		if rng.IntN(3) > 0 {
			w = 1
		}
		w = min(w, 1<<(bits.Len32(uint32(left))-1))
		widths = append(widths, w)
		left -= w
	}
	return widths
}

// checkTiling returns the loads of ranks. It fails unless every row has an aligned span
// of its width, and every slot of every rank one row.
func checkTiling(t testing.TB, widths []int32, costs []int64, ranks, slots int, spans []balance.Span, slot []int32) []int64 {
	t.Helper()
	loads, taken := make([]int64, ranks), make([]bool, ranks*slots)
	for i, s := range spans {
		if s.Ranks != widths[i] || s.First%s.Ranks != 0 || int(s.First+s.Ranks) > ranks || slot[i] < 0 || int(slot[i]) >= slots {
			t.Fatalf("row %d of width %d is in slot %d of ranks %d to %d", i, widths[i], slot[i], s.First, s.First+s.Ranks-1)
		}
		for r := s.First; r < s.First+s.Ranks; r++ {
			at := int(slot[i])*ranks + int(r)
			if taken[at] {
				t.Fatalf("row %d is in slot %d of rank %d, which another has", i, slot[i], r)
			}
			taken[at] = true
			loads[r] += (costs[i] + int64(widths[i]) - 1) / int64(widths[i])
		}
	}
	if slices.Contains(taken, false) {
		t.Fatal("a slot has no row")
	}
	return loads
}

func TestTileLaws(t *testing.T) {
	rng := rand.New(rand.NewPCG(61, 62))
	var tiler balance.Tiler
	for range 2000 {
		widest := int32(1) << rng.IntN(5)
		ranks, slots := int(widest)*(1+rng.IntN(6)), 1+rng.IntN(8)
		widths := anyTiles(rng, ranks, slots, widest)
		costs := make([]int64, len(widths))
		for i := range costs {
			costs[i] = []int64{rng.Int64N(1000), 0, 1, rng.Int64N(balance.MaxTotal / int64(len(costs)))}[rng.IntN(4)]
		}
		spans, slot, err := tiler.Tile(widths, costs, ranks, slots)
		if err != nil {
			t.Fatal(err)
		}
		checkTiling(t, widths, costs, ranks, slots, spans, slot)
		var fresh balance.Tiler
		if again, at, err := fresh.Tile(widths, costs, ranks, slots); err != nil || !slices.Equal(again, spans) || !slices.Equal(at, slot) {
			t.Fatalf("another Tiler has another result (error %v)", err)
		}
	}
}

// slotsOf returns the sum over slots of the largest cost of a piece, and what it is at the least with these rows.
func slotsOf(widths []int32, costs []int64, ranks, slots int, slot []int32) (longest, least int64) {
	most, pieces := make([]int64, slots), []int64(nil)
	for i, w := range widths {
		piece := (costs[i] + int64(w) - 1) / int64(w)
		most[slot[i]] = max(most[slot[i]], piece)
		pieces = append(pieces, slices.Repeat([]int64{piece}, int(w))...)
	}
	slices.Sort(pieces)
	for k := range slots {
		longest, least = longest+most[k], least+pieces[len(pieces)-1-k*ranks]
	}
	return longest, least
}

// TestTileGoals is the goal for quality: where the costliest row is no more than a
// rank's share, ranks cost alike to 0.2 %, and slots take 0.5 % longer than these rows must.
func TestTileGoals(t *testing.T) {
	rng := rand.New(rand.NewPCG(63, 64))
	for _, c := range []struct{ ranks, slots int }{{64, 32}, {256, 32}, {1024, 64}} {
		widths := anyTiles(rng, c.ranks, c.slots, 8)
		costs := make([]int64, len(widths))
		for i, w := range widths {
			costs[i] = int64(w) * (1e9 + rng.Int64N(1e9)) // as rows of packed short samples
			if w > 1 {
				costs[i] += rng.Int64N(int64(w) * int64(w) * 1e9) // as one long sample
			}
		}
		var tiler balance.Tiler
		spans, slot, err := tiler.Tile(widths, costs, c.ranks, c.slots)
		if err != nil {
			t.Fatal(err)
		}
		loads, total := checkTiling(t, widths, costs, c.ranks, c.slots, spans, slot), int64(0)
		for _, load := range loads {
			total += load
		}
		got := float64(slices.Max(loads)) * float64(c.ranks) / float64(total)
		longest, least := slotsOf(widths, costs, c.ranks, c.slots, slot)
		toLeast := float64(longest) / float64(least)
		t.Logf("%d ranks, %d slots, %d rows: max/mean %.5f, slots %.5f of the least", c.ranks, c.slots, len(widths), got, toLeast)
		if got > 1.002 || toLeast > 1.005 {
			t.Errorf("max/mean %.5f, want 1.002; slots %.5f of the least, want 1.005", got, toLeast)
		}
	}
}

func TestTileRefuses(t *testing.T) {
	var tiler balance.Tiler
	for _, tc := range []struct {
		widths       []int32
		costs        []int64
		ranks, slots int
		want         string
	}{
		{[]int32{1}, nil, 1, 1, "1 widths and 0 costs for 1 slots of 1 ranks; each row has both, and 1 to 1048576 ranks have 1 slot or more"},
		{[]int32{3}, []int64{1}, 3, 1, "row 0 has width 3; a power of two that divides 3 ranks is needed"},
		{[]int32{2}, []int64{1}, 3, 1, "row 0 has width 2; a power of two that divides 3 ranks is needed"},
		{[]int32{1}, []int64{-1}, 1, 1, "row 0 has cost -1; a cost is 0 or more, and all together are at most 2^62"},
		{[]int32{2}, []int64{1}, 2, 2, "rows have 2 units and 2 ranks have 2 slots; a row takes a slot for each unit of its width, and none may be left"},
	} {
		if _, _, err := tiler.Tile(tc.widths, tc.costs, tc.ranks, tc.slots); err == nil || err.Error() != tc.want {
			t.Errorf("%v: %v, want %s", tc.widths, err, tc.want)
		}
	}
}

func BenchmarkTile(b *testing.B) {
	rng := rand.New(rand.NewPCG(65, 66))
	for _, c := range []struct{ ranks, slots int }{{64, 16}, {1024, 16}, {8192, 16}} {
		widths := anyTiles(rng, c.ranks, c.slots, 8)
		costs := make([]int64, len(widths))
		for i, w := range widths {
			costs[i] = int64(w) * rng.Int64N(1e9)
		}
		b.Run(fmt.Sprintf("ranks=%d/slots=%d", c.ranks, c.slots), func(b *testing.B) {
			var tiler balance.Tiler
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := tiler.Tile(widths, costs, c.ranks, c.slots); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A row of width 4, one of width 2 and ten of width 1 on 4 ranks with 4 slots.
func ExampleTiler_Tile() {
	widths := []int32{1, 1, 4, 1, 1, 2, 1, 1, 1, 1, 1, 1}
	costs := []int64{5, 4, 80, 9, 3, 16, 8, 2, 7, 6, 1, 1}
	var tiler balance.Tiler
	spans, slots, err := tiler.Tile(widths, costs, 4, 4)
	fmt.Println(spans, err)
	fmt.Println(slots)
	// Output:
	// [{3 1} {2 1} {0 4} {2 1} {2 1} {0 2} {3 1} {3 1} {0 1} {1 1} {1 1} {0 1}] <nil>
	// [2 2 0 1 3 1 1 3 2 2 3 3]
}
