package balance_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/balance"
)

func cost7b(n int32) int64   { return 24576*int64(n) + int64(n)*int64(n) }
func costQuad(n int32) int64 { return int64(n) * int64(n) }

// imagesAndText draws the lengths of samples of one image and its caption:
// mostly short texts, and lognormal numbers of patches.
func imagesAndText(n int, capacity int32) []int32 {
	rng := rand.New(rand.NewPCG(21, 22))
	lengths := make([]int32, n)
	for i := range lengths {
		text := 1 + rng.IntN(64)
		if rng.IntN(10000) >= 9823 {
			text = 65 + int(rng.ExpFloat64()*40)
		}
		patches := min(max(700*math.Exp(1.1*rng.NormFloat64()), 16), 16384)
		lengths[i] = min(int32(text)+int32(patches), capacity)
	}
	return lengths
}

// exponential draws many short lengths and few long ones.
func exponential(n int, mean float64, capacity int32) []int32 {
	rng := rand.New(rand.NewPCG(41, 42))
	lengths := make([]int32, n)
	for i := range lengths {
		lengths[i] = int32(min(max(mean*rng.ExpFloat64(), 1), float64(capacity)))
	}
	return lengths
}

// costed is a workload with costs.
type costedWorkload struct {
	workload
	cost  string
	costs []int64
}

// withCosts gives the lengths the costs of dense 7B attention and of attention alone.
func withCosts(ws ...workload) (all []costedWorkload) {
	for _, w := range ws {
		for _, cost := range []struct {
			name string
			of   func(int32) int64
		}{{"7b", cost7b}, {"quad", costQuad}} {
			costs := make([]int64, len(w.lengths))
			for i, n := range w.lengths {
				costs[i] = cost.of(n)
			}
			all = append(all, costedWorkload{w, cost.name, costs})
		}
	}
	return all
}

// loads returns the largest and the mean cost of the bins, and the number of
// items in none. It fails if a bin is over its capacity.
func loads(t testing.TB, tokens []int32, costs []int64, bin []int32, capacity int32, bins int) (most, mean float64, unplaced int) {
	t.Helper()
	cost, sum := make([]int64, bins), make([]int64, bins)
	total := int64(0)
	for i, b := range bin {
		if b == balance.Unplaced {
			unplaced++
			continue
		}
		cost[b] += costs[i]
		total += costs[i]
		if sum[b] += int64(tokens[i]); sum[b] > int64(capacity) {
			t.Fatalf("bin %d holds more than %d tokens", b, capacity)
		}
	}
	return float64(slices.Max(cost)), float64(total) / float64(bins), unplaced
}

// binsAt returns the number of bins that the lengths fill to a part.
func binsAt(w workload, part float64) int {
	return int(math.Ceil(fill(w, 1) / part))
}

// TestCappedGoals is the goal for quality: no bin over its capacity, nothing
// unplaced, and the largest cost near the mean where one item or the cap does not
// forbid it. At 99 % fill the cap does: see costBound.
func TestCappedGoals(t *testing.T) {
	var p balance.Packer
	var e balance.Evener
	for _, w := range withCosts(
		workload{name: "images and text", lengths: imagesAndText(100_000, 32768), capacity: 32768},
		workload{name: "lognormal", lengths: lognormal(100_000, 8192), capacity: 8192},
	) {
		for _, goal := range []struct {
			part    float64
			toMean  float64 // gap of the largest cost to the mean that is enough
			toBound float64 // gap to the bound that is, too
		}{{0.90, 0.001, 0.0001}, {0.95, 0.001, 0.0001}, {0.98, 0.01, 0.0001}, {0.99, 0.03, 0.01}} {
			bins := binsAt(w.workload, goal.part)
			bin, err := e.Capped(&p, w.lengths, w.costs, w.capacity, bins)
			if err != nil {
				t.Fatal(err)
			}
			most, mean, unplaced := loads(t, w.lengths, w.costs, bin, w.capacity, bins)
			bound := float64(costBound(w.lengths, w.costs, w.capacity, bins))
			t.Logf("%s %s in bins of %d, fill %.1f %%: max/mean %.4f, max/bound %.4f", w.name, w.cost, w.capacity, 100*goal.part, most/mean, most/bound)
			if unplaced > 0 {
				t.Errorf("%d items are unplaced", unplaced)
			}
			if most/mean-1 > goal.toMean && most/bound-1 > goal.toBound {
				t.Errorf("the largest cost is %.3f %% above the mean and %.3f %% above its bound, want %.3f %% or %.3f %%",
					100*(most/mean-1), 100*(most/bound-1), 100*goal.toMean, 100*goal.toBound)
			}
		}
	}
}

// TestEvenSteps evens the rows of a job's steps, which are full to the brim.
func TestEvenSteps(t *testing.T) {
	var p balance.Packer
	var e balance.Evener
	for _, test := range []struct {
		rows     int
		capacity int32
		lengths  []int32
		gap      float64 // of the largest cost to its bound
	}{
		{16, 32768, imagesAndText(2000, 8192), 0.001},
		{64, 8192, imagesAndText(20000, 4096), 0.075},
		{256, 16384, imagesAndText(20000, 8192), 0.02},
		{256, 32768, imagesAndText(20000, 16384), 0.02},
		{256, 32768, lognormal(20000, 16384), 0.02},
		{2048, 32768, lognormal(60_000, 16384), 0.02},
		{4096, 65536, imagesAndText(300_000, 16384), 0.015},
		{4096, 8192, exponential(312_000, 110, 8192), 0.001},
	} {
		w := withCosts(workload{lengths: test.lengths})[0]
		tokens := 0
		for i, n := range w.lengths {
			if tokens += int(n); tokens > (test.rows+2)*int(test.capacity) {
				w.lengths, w.costs = w.lengths[:i], w.costs[:i]
				break
			}
		}
		packed, n, err := p.PackLimited(w.lengths, 0, test.capacity, test.rows, 32)
		if err != nil {
			t.Fatal(err)
		}
		bin := slices.Clone(packed[:n])
		before, mean, left := loads(t, w.lengths[:n], w.costs, bin, test.capacity, test.rows)
		if err := e.Even(w.lengths[:n], w.costs[:n], bin, test.capacity, test.rows); err != nil {
			t.Fatal(err)
		}
		after, _, _ := loads(t, w.lengths[:n], w.costs, bin, test.capacity, test.rows)
		var tokensIn []int32
		var costsIn []int64
		for i, b := range bin {
			if b != balance.Unplaced {
				tokensIn, costsIn = append(tokensIn, w.lengths[i]), append(costsIn, w.costs[i])
			}
		}
		bound := float64(costBound(tokensIn, costsIn, test.capacity, test.rows))
		t.Logf("%3d rows of %5d, %4d items, %2d left over: max/mean %.4f -> %.4f, bound %.4f", test.rows, test.capacity, n, left, before/mean, after/mean, bound/mean)
		if gap := after/bound - 1; gap > test.gap {
			t.Errorf("%d rows of %d: the largest cost is %.2f %% above its bound, want %.2f %%", test.rows, test.capacity, 100*gap, 100*test.gap)
		}
	}
}

// anyPlacement puts items at random where they fit.
func anyPlacement(rng *rand.Rand, tokens []int32, capacity int32, bins int) []int32 {
	room := slices.Repeat([]int32{capacity}, bins)
	bin := make([]int32, len(tokens))
	for i, n := range tokens {
		bin[i] = rng.Int32N(int32(bins))
		if room[bin[i]] < n {
			bin[i] = balance.Unplaced
			continue
		}
		room[bin[i]] -= n
	}
	return bin
}

// TestEvenLaws: caps are kept, the same items are placed, the largest cost does
// not grow, and the same input gives the same output.
func TestEvenLaws(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	var e balance.Evener // one for all, so that stale scratch would show
	better := 0
	for range 1500 {
		capacity := 1 + rng.Int32N(500)
		tokens := anyLengths(rng, rng.IntN(120), capacity)
		costs := make([]int64, len(tokens))
		for i := range costs {
			costs[i] = []int64{rng.Int64N(1000), costQuad(tokens[i]), int64(rng.IntN(2)), rng.Int64N(1 << 55)}[rng.IntN(4)]
		}
		bins := 1 + rng.IntN(30)
		bin := anyPlacement(rng, tokens, capacity, bins)
		evened, again := slices.Clone(bin), slices.Clone(bin)
		if err := e.Even(tokens, costs, evened, capacity, bins); err != nil {
			t.Fatal(err)
		}
		before, _, _ := loads(t, tokens, costs, bin, capacity, bins)
		after, _, _ := loads(t, tokens, costs, evened, capacity, bins)
		if after > before {
			t.Fatalf("the largest cost grew from %.0f to %.0f", before, after)
		}
		if after < before {
			better++
		}
		for i := range bin {
			if (bin[i] == balance.Unplaced) != (evened[i] == balance.Unplaced) {
				t.Fatalf("item %d was in bin %d and is in %d", i, bin[i], evened[i])
			}
		}
		var fresh balance.Evener
		if err := fresh.Even(tokens, costs, again, capacity, bins); err != nil || !slices.Equal(again, evened) {
			t.Fatalf("another Evener has another result (error %v)", err)
		}
	}
	if better < 500 {
		t.Errorf("only %d placements got better", better)
	}
}

// TestEvenNearOptimum compares with the best of all placements of few items.
func TestEvenNearOptimum(t *testing.T) {
	rng := rand.New(rand.NewPCG(33, 34))
	var p balance.Packer
	var e balance.Evener
	optimal, tried := 0, 0
	for range 400 {
		const capacity = 60
		tokens := anyLengths(rng, 4+rng.IntN(5), capacity/2)
		costs := make([]int64, len(tokens))
		for i, n := range tokens {
			costs[i] = costQuad(n) + 30*int64(n)
		}
		bins := 2 + rng.IntN(2)
		bin, err := e.Capped(&p, tokens, costs, capacity, bins)
		if err != nil {
			t.Fatal(err)
		}
		got, _, unplaced := loads(t, tokens, costs, bin, capacity, bins)
		if unplaced > 0 {
			continue
		}
		tried++
		best := leastCost(tokens, costs, capacity, bins)
		if bound := float64(costBound(tokens, costs, capacity, bins)); bound > best {
			t.Fatalf("bound %.0f, but the optimum is %.0f", bound, best)
		}
		if got > 1.25*best {
			t.Errorf("largest cost %.0f, optimum %.0f: tokens %v in %d bins", got, best, tokens, bins)
		}
		if got == best {
			optimal++
		}
	}
	t.Logf("%d of %d are optimal", optimal, tried)
	if optimal < tried*8/10 {
		t.Errorf("%d of %d are optimal, want 80 %%", optimal, tried)
	}
}

// leastCost tries every bin for every item.
func leastCost(tokens []int32, costs []int64, capacity int32, bins int) float64 {
	best := int64(math.MaxInt64)
	room, load := slices.Repeat([]int32{capacity}, bins), make([]int64, bins)
	var place func(i int)
	place = func(i int) {
		if i == len(tokens) {
			best = min(best, slices.Max(load))
			return
		}
		for b := range room {
			if room[b] >= tokens[i] {
				room[b], load[b] = room[b]-tokens[i], load[b]+costs[i]
				place(i + 1)
				room[b], load[b] = room[b]+tokens[i], load[b]-costs[i]
			}
		}
	}
	place(0)
	return float64(best)
}

func TestEvenRefuses(t *testing.T) {
	var e balance.Evener
	for _, test := range []struct {
		name     string
		tokens   []int32
		costs    []int64
		bin      []int32
		capacity int32
		bins     int
	}{
		{"a cost missing", []int32{1, 1}, []int64{1}, []int32{0, 0}, 10, 2},
		{"a bin missing", []int32{1, 1}, []int64{1, 1}, []int32{0}, 10, 2},
		{"a negative cost", []int32{1, 1}, []int64{1, -1}, []int32{0, 0}, 10, 2},
		{"costs too large", []int32{1, 1}, []int64{1 << 61, 1 << 61}, []int32{0, 0}, 10, 2},
		{"an item too long", []int32{1, 11}, []int64{1, 1}, []int32{0, 0}, 10, 2},
		{"no such bin", []int32{1, 1}, []int64{1, 1}, []int32{0, 2}, 10, 2},
		{"no such bin", []int32{1, 1}, []int64{1, 1}, []int32{0, -2}, 10, 2},
		{"a bin over its capacity", []int32{6, 6}, []int64{1, 1}, []int32{0, 0}, 10, 2},
		{"no bins", []int32{6, 6}, []int64{1, 1}, []int32{0, 0}, 10, 0},
		{"fewer than no bins", nil, nil, nil, 10, -1},
	} {
		before := slices.Clone(test.bin)
		if err := e.Even(test.tokens, test.costs, test.bin, test.capacity, test.bins); err == nil {
			t.Errorf("%s: no error", test.name)
		}
		if !slices.Equal(before, test.bin) {
			t.Errorf("%s: bins changed to %v", test.name, test.bin)
		}
	}
}

func TestEvenAllocatesNothing(t *testing.T) {
	w := withCosts(workload{lengths: imagesAndText(3000, 8192)})[0]
	var p balance.Packer
	var e balance.Evener
	bins := binsAt(workload{lengths: w.lengths, capacity: 8192}, 0.98)
	allocs := testing.AllocsPerRun(5, func() {
		if _, err := e.Capped(&p, w.lengths, w.costs, 8192, bins); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations a call in steady state, want 0", allocs)
	}
}

// costBound returns a cost that the heaviest bin cannot go below.
// Let r be the least cost per token of any item. An item costs x = cost - r*tokens
// more than the same tokens of the cheapest. A bin of cost M at most holds items of
// excess sum X, and at most (M-X)/r tokens: it leaves max(0, X - (M - r*C))/r of its
// capacity C free, and an excess above M - r*C of an item adds to that of its bin. All
// of that must fit in the free space.
func costBound(tokens []int32, costs []int64, capacity int32, bins int) int64 {
	rate := math.Inf(1)
	total, largest, sum := int64(0), int64(0), int64(0)
	for i, n := range tokens {
		rate = min(rate, float64(costs[i])/float64(n))
		total, largest, sum = total+costs[i], max(largest, costs[i]), sum+int64(n)
	}
	free := float64(int64(bins)*int64(capacity) - sum)
	fits := func(most int64) bool {
		spare := float64(most) - rate*float64(capacity)
		need := 0.0
		if spare < 0 {
			need, spare = -spare*float64(bins), 0
		}
		for i, n := range tokens {
			need += max(0, float64(costs[i])-rate*float64(n)-spare)
		}
		return need <= rate*free
	}
	low, high := max(largest, (total+int64(bins)-1)/int64(bins)), total
	for low < high {
		if mid := low + (high-low)/2; fits(mid) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}
