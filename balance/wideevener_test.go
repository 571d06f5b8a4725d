package balance_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace-data/millrace/balance"
)

// longTail draws lengths of which some are many times as long as most.
func longTail(n int, seed uint64) []int32 {
	rng := rand.New(rand.NewPCG(seed, 5))
	lengths := make([]int32, n)
	for i := range lengths {
		lengths[i] = int32(min(max(1000*math.Exp(rng.NormFloat64()), 16), 32768))
	}
	return lengths
}

// TestWideEvenGoal is the goal for quality: 16,384 samples in 3 microbatches of 1,024
// ranks, of which the slowest has within 1 % of the mean work.
func TestWideEvenGoal(t *testing.T) {
	const ranks, slots = 1024, 3
	for _, seed := range []uint64{2, rand.Uint64()} {
		for _, w := range withCosts(workload{name: "lognormal", lengths: longTail(16384, seed)}) {
			tokens := int64(0)
			for _, n := range w.lengths {
				tokens += int64(n)
			}
			for _, part := range []float64{0.90, 0.95} {
				wide := balance.Wide{Capacity: int32(math.Ceil(float64(tokens) / (ranks * slots) / part)), Widest: 64, Units: ranks * slots}
				var p balance.WidePacker
				row, n, err := p.Pack(w.lengths, 0, wide, len(w.lengths))
				if err != nil || n != len(w.lengths) || slices.Contains(row, balance.Unplaced) {
					t.Fatal(n, err)
				}
				row = slices.Clone(row)
				var e balance.WideEvener
				_, before := widthsOf(t, w.lengths, row, wide)
				most, lockstep := tiled(t, w.costs, row, before, ranks, slots)
				from := time.Now()
				widths, err := e.Even(w.lengths, w.costs, row, wide)
				took := time.Since(from)
				if err != nil {
					t.Fatal(err)
				}
				after, waits := tiled(t, w.costs, row, widths, ranks, slots)
				t.Logf("seed %d, %s, fill %.0f %%: ranks %.4f -> %.4f, slots %.4f -> %.4f, widest %d, %v", seed, w.cost, 100*part, most, after, lockstep, waits, slices.Max(widths), took)
				// If more pieces than there are units cost half a unit's mean, two have to share one.
				if after > 1.01 || waits > 1.03 {
					t.Errorf("seed %d, %s, fill %.0f %%: the slowest rank has %.4f of the mean, want 1.01, and %.4f if ranks wait in each slot, want 1.03", seed, w.cost, 100*part, after, waits)
				}
			}
		}
	}
}

// TestWideEvenBound: a sample that costs more than the widest row can even binds the step. The rows
// beside it are evened, whether it fills its own or other samples are with it, which leave then.
func TestWideEvenBound(t *testing.T) {
	wide := balance.Wide{Capacity: 8192, Widest: 16, Units: 256}
	for _, longest := range []int32{16 * 8192, 16*8192 - 100} {
		lengths := []int32{longest, longest}
		tokens := 2 * int(longest)
		for _, n := range lognormal(3, 2000, 8192) {
			if tokens += int(n); tokens > 256*8192*95/100 {
				break
			}
			lengths = append(lengths, n)
		}
		w := withCosts(workload{lengths: lengths})[0]
		var p balance.WidePacker
		row, n, err := p.Pack(lengths, 0, wide, len(lengths))
		if err != nil || n != len(lengths) {
			t.Fatal(n, err)
		}
		before := slices.Clone(row)
		_, narrow := widthsOf(t, lengths, before, wide)
		_, was := tiled(t, w.costs, before, narrow, 64, 4)
		after := slices.Clone(row)
		widths, err := new(balance.WideEvener).Even(lengths, w.costs, after, wide)
		if err != nil {
			t.Fatal(err)
		}
		_, is := tiled(t, w.costs, after, widths, 64, 4)
		t.Logf("two samples of %d tokens: slots %.4f -> %.4f", longest, was, is)
		if is > was-0.03 {
			t.Errorf("two samples of %d tokens: slots %.4f -> %.4f, want 0.03 less", longest, was, is)
		}
	}
}

// tiled gives rows to ranks and returns the largest cost of a rank over the mean, and the same
// where ranks wait for each other in every slot.
func tiled(t testing.TB, costs []int64, row, widths []int32, ranks, slots int) (most, lockstep float64) {
	t.Helper()
	loads := make([]int64, len(widths))
	total := int64(0)
	for i, r := range row {
		loads[r] += costs[i]
		total += costs[i]
	}
	var tiler balance.Tiler
	spans, slot, err := tiler.Tile(widths, loads, ranks, slots)
	if err != nil {
		t.Fatal(err)
	}
	rank, heaviest := make([]float64, ranks), make([]float64, slots)
	for r, span := range spans {
		piece := float64(loads[r]) / float64(span.Ranks)
		heaviest[slot[r]] = max(heaviest[slot[r]], piece)
		for k := range span.Ranks {
			rank[span.First+k] += piece
		}
	}
	for _, h := range heaviest {
		lockstep += h
	}
	mean := float64(total) / float64(ranks)
	return slices.Max(rank) / mean, lockstep / mean
}

// TestWideEvenLaws: rows keep their room, widths add up, the same items are placed, the
// costliest unit costs no more than before, and the same input gives the same output.
func TestWideEvenLaws(t *testing.T) {
	rng := rand.New(rand.NewPCG(61, 62))
	var p balance.WidePacker
	var e balance.WideEvener // one for all, so that stale scratch would show
	better := 0
	for range 600 {
		w := balance.Wide{Capacity: 10 + rng.Int32N(300), Widest: 1 << rng.IntN(5)}
		w.Units = int(w.Widest) * (1 + rng.IntN(12))
		lengths := anyLengths(rng, rng.IntN(300), w.Capacity)
		for i := range lengths {
			if rng.IntN(12) == 0 {
				lengths[i] = 1 + rng.Int32N(w.Capacity*w.Widest)
			}
		}
		costs := make([]int64, len(lengths))
		for i, n := range lengths {
			costs[i] = []int64{costQuad(n), cost7b(n), rng.Int64N(1 << 50), 0}[rng.IntN(4)]
		}
		row, n, err := p.Pack(lengths, 0, w, len(lengths))
		if err != nil {
			t.Fatal(err)
		}
		before, again := slices.Clone(row[:n]), slices.Clone(row[:n])
		row = slices.Clone(before)
		_, narrow := widthsOf(t, lengths[:n], before, w)
		widths, err := e.Even(lengths[:n], costs[:n], row, w)
		if err != nil {
			t.Fatal(err)
		}
		widths = slices.Clone(widths)
		room, units := make([]int64, len(widths)), 0
		for _, width := range widths {
			units += int(width)
		}
		for i, r := range row {
			if (r < 0) != (before[i] < 0) {
				t.Fatalf("item %d was in row %d and is in %d", i, before[i], r)
			}
			if r >= 0 {
				if room[r] += int64(lengths[i]); room[r] > int64(widths[r])*int64(w.Capacity) || widths[r] > w.Widest {
					t.Fatalf("row %d of width %d has more than %d tokens a unit", r, widths[r], w.Capacity)
				}
			}
		}
		for r := range room {
			if r > 0 && room[r] > 0 && room[r-1] == 0 {
				t.Fatalf("row %d holds nothing, and the next does", r-1)
			}
		}
		most, was := costliest(costs, row, widths), costliest(costs, before, narrow)
		if units != w.Units || most > was {
			t.Fatalf("%d of %d units; the costliest had %d and has %d", units, w.Units, was, most)
		}
		if most < was {
			better++
		}
		var fresh balance.WideEvener
		if same, err := fresh.Even(lengths[:n], costs[:n], again, w); err != nil || !slices.Equal(again, row) || !slices.Equal(same, widths) {
			t.Fatalf("another WideEvener has another result (error %v)", err)
		}
	}
	if better < 150 {
		t.Errorf("only %d steps got better", better)
	}
}

// costliest is the largest cost of a row over its width, rounded up.
func costliest(costs []int64, row, widths []int32) (most int64) {
	loads := make([]int64, len(widths))
	for i, r := range row {
		if r >= 0 {
			loads[r] += costs[i]
		}
	}
	for r, load := range loads {
		most = max(most, (load+int64(widths[r])-1)/int64(widths[r]))
	}
	return most
}

func TestWideEvenRefuses(t *testing.T) {
	w := balance.Wide{Capacity: 10, Widest: 2, Units: 2}
	for name, test := range map[string]struct {
		tokens []int32
		costs  []int64
		row    []int32
	}{
		"an item too long":    {[]int32{21}, []int64{1}, []int32{0}},
		"a cost missing":      {[]int32{1, 1}, []int64{1}, []int32{0, 0}},
		"a row missing":       {[]int32{1, 1}, []int64{1, 1}, []int32{0}},
		"a negative cost":     {[]int32{1}, []int64{-1}, []int32{0}},
		"no such row":         {[]int32{1}, []int64{1}, []int32{2}},
		"a row over its room": {[]int32{20, 1}, []int64{1, 1}, []int32{0, 0}},
		"too many units":      {[]int32{20, 1}, []int64{1, 1}, []int32{0, 1}},
	} {
		before := slices.Clone(test.row)
		if _, err := new(balance.WideEvener).Even(test.tokens, test.costs, test.row, w); err == nil || !slices.Equal(before, test.row) {
			t.Errorf("%s: no error, or rows changed to %v", name, test.row)
		}
	}
}

// A long sample costs four times a unit's share for its attention, and fits one unit: it
// is cut over four, and short samples fill their room.
func ExampleWideEvener_Even() {
	tokens := []int32{4000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}
	costs := make([]int64, len(tokens))
	for i, n := range tokens {
		costs[i] = int64(n) * int64(n) / 1000
	}
	row := []int32{0, 1, 1, 1, 1, 2, 2, 2, 2}
	var evener balance.WideEvener
	widths, err := evener.Even(tokens, costs, row, balance.Wide{Capacity: 4096, Widest: 4, Units: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(row, widths)
	// Output: [0 1 2 3 4 1 2 3 4] [4 1 1 1 1]
}
