package balance_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace-data/millrace/balance"
)

func cost7b(n int32) int64   { return 24576*int64(n) + int64(n)*int64(n) }
func costQuad(n int32) int64 { return int64(n) * int64(n) }

// imagesAndText draws the lengths of samples of one image and its caption:
// mostly short texts, and lognormal numbers of patches.
func imagesAndText(seed uint64, n int, capacity int32) []int32 {
	rng := rand.New(rand.NewPCG(seed, seed+1))
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
func exponential(seed uint64, n int, mean float64, capacity int32) []int32 {
	rng := rand.New(rand.NewPCG(seed, seed+1))
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

// rows packs and evens, as a job with a fill does.
type rows struct {
	packer balance.Packer
	evener balance.Evener
	bin    []int32
}

func (r *rows) even(t testing.TB, w costedWorkload, bins int) []int32 {
	packed, n, err := r.packer.Pack(w.lengths, 0, w.capacity, bins, len(w.lengths))
	if err != nil || n != len(w.lengths) {
		t.Fatal(n, err)
	}
	r.evener.Thorough = true
	r.bin = append(r.bin[:0], packed...)
	if err := r.evener.Even(w.lengths, w.costs, r.bin, w.capacity, bins); err != nil {
		t.Fatal(err)
	}
	return r.bin
}

// answers draws the lengths of a prompt and one of its several answers, which are alike
// in length and at most as long as a limit.
func answers(seed uint64, n int, limit int32) []int32 {
	rng := rand.New(rand.NewPCG(seed, seed+1))
	lengths := make([]int32, 0, n)
	for len(lengths) < n {
		prompt := 32 + rng.Int32N(480)
		scale := 800 * math.Exp(0.7*rng.NormFloat64())
		for range 8 {
			answer := min(max(scale*math.Exp(0.6*rng.NormFloat64()), 8), float64(limit))
			lengths = append(lengths, min(prompt+int32(answer), limit))
		}
	}
	return lengths[:n]
}

// pareto draws lengths of a heavy tail.
func pareto(seed uint64, n int, capacity int32) []int32 {
	rng := rand.New(rand.NewPCG(seed, seed+1))
	lengths := make([]int32, n)
	for i := range lengths {
		lengths[i] = int32(min(200*math.Pow(1-rng.Float64(), -1/1.2), float64(capacity)))
	}
	return lengths
}

// TestFillGoals is the goal for quality where a job asks for a fill, on other lengths in each
// run: no bin over its capacity, at most 32 samples left for the next step, and the largest cost within
// 0.05 % of the mean, or of a bound, which single samples may decide.
func TestFillGoals(t *testing.T) {
	const n = 10_000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ws := []workload{
		{name: "images and text", lengths: imagesAndText(seed, n, 32768), capacity: 32768},
		{name: "lognormal", lengths: lognormal(seed, n, 8192), capacity: 8192},
		{name: "lognormal", lengths: lognormal(seed, n, 8192), capacity: 32768},
		{name: "answers", lengths: answers(seed, n, 8192), capacity: 32768},
		{name: "pareto", lengths: pareto(seed, n, 8192), capacity: 32768},
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, w := range traces(t) {
		drawn := make([]int32, n)
		for i := range drawn {
			drawn[i] = w.lengths[rng.IntN(len(w.lengths))]
		}
		w.lengths = drawn
		ws = append(ws, w)
	}
	var r rows
	for _, w := range withCosts(ws...) {
		for _, part := range []float64{0.90, 0.95, 0.98} {
			from := time.Now()
			got := r.step(t, w, part)
			took := time.Since(from)
			t.Logf("%s %s in %d bins of %d, fill %.1f %%: max/mean %.5f, max/bound %.5f, %v", w.name, w.cost, got.bins, w.capacity, 100*got.fill, got.toMean, got.toBound, took)
			if over := min(got.toMean, got.toBound) - 1; over > goalOf(w, part) {
				t.Errorf("seed %d: %s %s in bins of %d, fill %.0f %%: the largest cost is %.3f %% above its bound, want %.3f %%",
					seed, w.name, w.cost, w.capacity, 100*part, 100*over, 100*goalOf(w, part))
			}
		}
	}
}

// goalOf is how far above the bound the largest cost may be. Four shapes do not always reach 0.05 %. Images and text
// have cheap tokens only in short samples, which full bins run out of; and so do answers, of which the longest cost
// nine tenths of a bin and leave room for cheap ones. The longest Pareto samples cost nearly a whole bin with quadratic
// cost, in a quarter of its tokens: 7 of 400 draws were above 0.05 % at 90 %, by 0.21 % at most. OmniBal's samples have four sizes, of which a
// bin of 4096 holds five: by linear programs over all ways to fill a bin, nothing is better than 1.7, 0 and 0.5 % at
// 90, 95 and 98 %, and 0, 1.3 and 3.4 % with quadratic cost.
func goalOf(w costedWorkload, part float64) float64 {
	full, quad := part > 0.97, w.cost == "quad"
	switch coarse := w.name == "omnibal" && w.capacity == 4096; {
	case coarse && quad && full:
		return 0.6
	case coarse && quad:
		return 0.1
	case coarse:
		return 0.04
	case full && w.name == "images and text":
		return 0.004
	case full && quad && w.name == "answers":
		return 0.02
	case quad && w.name == "pareto":
		return 0.004
	}
	return 0.0005
}

// evened is what a step's bins are like: the largest cost over the mean, and over its bound.
type evened struct {
	bins            int
	fill            float64
	toMean, toBound float64
}

// step packs and evens lengths in as many bins as they fill to a part, as a job does: those that
// find no room wait for the next step.
func (r *rows) step(t testing.TB, w costedWorkload, part float64) evened {
	bins := max(binsAt(w.workload, part), lowerBound(w.lengths, w.capacity))
	packed, n, err := r.packer.Pack(w.lengths, 0, w.capacity, bins, 32)
	if err != nil {
		t.Fatal(err)
	}
	var lengths, bin []int32
	var costs []int64
	for i, b := range packed[:n] {
		if b != balance.Unplaced {
			lengths, costs, bin = append(lengths, w.lengths[i]), append(costs, w.costs[i]), append(bin, b)
		}
	}
	r.evener.Thorough = true
	if err := r.evener.Even(lengths, costs, bin, w.capacity, bins); err != nil {
		t.Fatal(err)
	}
	most, mean, _ := loads(t, lengths, costs, bin, w.capacity, bins) // fails over a cap
	q, err := new(balance.Balancer).Evaluate(costs, bin, balance.Options{Bins: bins})
	if err != nil {
		t.Fatal(err)
	}
	bound := max(float64(costBound(lengths, costs, w.capacity, bins)), float64(q.TightBound))
	return evened{bins, fill(workload{lengths: lengths, capacity: w.capacity}, bins), most / mean, most / bound}
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
		{16, 32768, imagesAndText(21, 2000, 8192), 0.001},
		{64, 8192, imagesAndText(21, 20000, 4096), 0.075},
		{256, 16384, imagesAndText(21, 20000, 8192), 0.02},
		{256, 32768, imagesAndText(21, 20000, 16384), 0.02},
		{256, 32768, lognormal(7, 20000, 16384), 0.02},
		{2048, 32768, lognormal(7, 60_000, 16384), 0.02},
		{4096, 65536, imagesAndText(21, 300_000, 16384), 0.015},
		{4096, 8192, exponential(41, 312_000, 110, 8192), 0.001},
	} {
		w := withCosts(workload{lengths: test.lengths})[0]
		tokens := 0
		for i, n := range w.lengths {
			if tokens += int(n); tokens > (test.rows+2)*int(test.capacity) {
				w.lengths, w.costs = w.lengths[:i], w.costs[:i]
				break
			}
		}
		packed, n, err := p.Pack(w.lengths, 0, test.capacity, test.rows, 32)
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
	var r rows
	optimal, tried := 0, 0
	for range 400 {
		const capacity = 60
		tokens := anyLengths(rng, 4+rng.IntN(5), capacity/2)
		costs := make([]int64, len(tokens))
		for i, n := range tokens {
			costs[i] = costQuad(n) + 30*int64(n)
		}
		bins := 2 + rng.IntN(2)
		bin := r.even(t, costedWorkload{workload: workload{lengths: tokens, capacity: capacity}, costs: costs}, bins)
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
	w := withCosts(workload{lengths: imagesAndText(21, 3000, 8192), capacity: 8192})[0]
	var r rows
	bins := binsAt(workload{lengths: w.lengths, capacity: 8192}, 0.98)
	allocs := testing.AllocsPerRun(5, func() {
		r.even(t, w, bins)
	})
	if allocs != 0 {
		t.Errorf("%v allocations a call in steady state, want 0", allocs)
	}
}

// costBound returns a cost that the heaviest bin cannot go below, for what the cap forbids.
//
// Let r be a cost per token. An item has the excess cost - r*tokens, which is negative for cheap ones. A bin of cost M
// at most, whose items have the excess X in all, has (M-X)/r tokens at most, so it leaves (X - (M-r*C))/r of its
// capacity C free. The excess of one item that is above M-r*C adds to that of its bin, and cheap items
// can take away no more than they lack. All of that must fit in the free space, for every r.
func costBound(tokens []int32, costs []int64, capacity int32, bins int) int64 {
	total, largest, sum := int64(0), int64(0), int64(0)
	rates := make([]float64, len(tokens))
	for i, n := range tokens {
		rates[i] = float64(costs[i]) / float64(n)
		total, largest, sum = total+costs[i], max(largest, costs[i]), sum+int64(n)
	}
	slices.Sort(rates)
	free := float64(int64(bins)*int64(capacity) - sum)
	bound := max(largest, (total+int64(bins)-1)/int64(bins))
	for k := 0; k < len(rates); k += len(rates)/32 + 1 {
		rate := rates[k]
		fits := func(most int64) bool {
			spare := float64(most) - rate*float64(capacity)
			need := 0.0
			if spare < 0 {
				need, spare = -spare*float64(bins), 0
			}
			for i, n := range tokens {
				excess := float64(costs[i]) - rate*float64(n)
				need += max(min(excess, 0), excess-spare)
			}
			return need <= rate*free
		}
		if fits(bound) {
			continue
		}
		low, high := bound+1, total
		for low < high {
			if mid := low + (high-low)/2; fits(mid) {
				high = mid
			} else {
				low = mid + 1
			}
		}
		bound = low
	}
	return bound
}
