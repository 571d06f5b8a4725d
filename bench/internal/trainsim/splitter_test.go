package trainsim

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// unitLoads replays places. It fails if a group is not aligned.
func unitLoads(t *testing.T, costs []int64, places []place, units, overhead int) []int64 {
	t.Helper()
	load := make([]int64, units)
	for i, p := range places {
		if p.width < 1 || p.width&(p.width-1) != 0 || p.first%p.width != 0 || p.first < 0 || int(p.first+p.width) > units {
			t.Fatalf("item %d is on units %d to %d of %d", i, p.first, p.first+p.width-1, units)
		}
		cost := costs[i]
		if p.width > 1 {
			cost += (cost*int64(overhead) + 999) / 1000
		}
		for u := p.first; u < p.first+p.width; u++ {
			load[u] += (cost + int64(p.width) - 1) / int64(p.width)
		}
	}
	return load
}

// TestSpread: with giants of several times the mean, the largest load is at most 0.2 %
// above the mean, and the overhead.
func TestSpread(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	for _, units := range []int{64, 256} {
		for _, overhead := range []int{0, 50, 100} {
			costs, total := make([]int64, 16*units), int64(0)
			for i := range costs {
				costs[i] = 1 + rng.Int64N(1<<20)
				if i%units == 0 {
					costs[i] <<= 6
				}
				total += costs[i]
			}
			most := slices.Max(unitLoads(t, costs, spread(costs, units, overhead), units, overhead))
			if got, limit := float64(most)*float64(units)/float64(total), 1.002+float64(overhead)/1000; got > limit {
				t.Errorf("%d units, overhead %d: largest over mean is %.4f, want %.4f", units, overhead, got, limit)
			}
		}
	}
}

// TestSpreadNearOptimum compares with the best of all placements of few items.
func TestSpreadNearOptimum(t *testing.T) {
	rng := rand.New(rand.NewPCG(43, 44))
	sum := 0.0
	const rounds = 200
	for range rounds {
		overhead := 50 * rng.IntN(3)
		costs := make([]int64, 1+rng.IntN(5))
		for i := range costs {
			costs[i] = 1 + rng.Int64N(1<<(4+rng.IntN(12)))
		}
		most := slices.Max(unitLoads(t, costs, spread(costs, 4, overhead), 4, overhead))
		best := most
		places := make([]place, len(costs))
		var try func(i int)
		try = func(i int) {
			if i == len(costs) {
				best = min(best, slices.Max(unitLoads(t, costs, places, 4, overhead)))
				return
			}
			for _, p := range []place{{first: 0, width: 1}, {first: 1, width: 1}, {first: 2, width: 1}, {first: 3, width: 1}, {first: 0, width: 2}, {first: 2, width: 2}, {first: 0, width: 4}} {
				places[i] = p
				try(i + 1)
			}
		}
		try(0)
		sum += float64(most) / float64(best)
	}
	if sum/rounds > 1.05 {
		t.Errorf("the largest load is %.3f times the optimum on average, want 1.05", sum/rounds)
	}
}
