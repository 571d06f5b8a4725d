package balance_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/balance"
)

// TestBitonic: each microbatch comes once, costs rise to the largest and fall
// after it, and the ends hold the smallest.
func TestBitonic(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	for n := range 40 {
		costs := make([]int64, n)
		for i := range costs {
			costs[i] = rng.Int64N(20)
		}
		order := balance.Bitonic(costs)
		seen := slices.Clone(order)
		slices.Sort(seen)
		for i, at := range seen {
			if int(at) != i {
				t.Fatalf("%v: order %v", costs, order)
			}
		}
		arranged := make([]int64, n)
		for i, at := range order {
			arranged[i] = costs[at]
		}
		falling := false
		for i := 1; i < n; i++ {
			falling = falling || arranged[i] < arranged[i-1]
			if falling && arranged[i] > arranged[i-1] {
				t.Fatalf("%v are arranged as %v", costs, arranged)
			}
		}
		if sorted := slices.Sorted(slices.Values(costs)); n > 1 && arranged[0]+arranged[n-1] != sorted[0]+sorted[1] {
			t.Fatalf("%v are arranged as %v", costs, arranged)
		}
	}
}

// TestDeal: every rank gets as many bins, each bin once; a slot's loads are
// neighbours in the order of all loads; no rank collects the heavy bins.
func TestDeal(t *testing.T) {
	rng := rand.New(rand.NewPCG(33, 34))
	var b balance.Balancer
	for range 200 {
		ranks, slots := 1+rng.IntN(20), rng.IntN(12)
		loads := make([]int64, ranks*slots)
		for i := range loads {
			loads[i] = rng.Int64N(1000)
			if rng.IntN(5) == 0 {
				loads[i] *= 10
			}
		}
		bins, err := b.Deal(loads, ranks)
		if err != nil {
			t.Fatal(err)
		}
		seen := slices.Clone(bins)
		slices.Sort(seen)
		sums := make([]int64, ranks)
		for i, bin := range bins {
			if int(seen[i]) != i {
				t.Fatalf("bins %v", bins)
			}
			sums[i%ranks] += loads[bin]
		}
		for slot := 1; slot < slots; slot++ {
			before, here := bins[(slot-1)*ranks:slot*ranks], bins[slot*ranks:(slot+1)*ranks]
			for i := range here {
				if loads[here[i]] > loads[slices.MinFunc(before, func(a, b int32) int { return int(loads[a] - loads[b]) })] {
					t.Fatalf("slot %d has a bin heavier than one of the slot before: %v of %v", slot, bins, loads)
				}
			}
		}
		if slots > 0 && slices.Max(sums)-slices.Min(sums) > slices.Max(loads) {
			t.Fatalf("ranks sum to %v, and no bin is over %d", sums, slices.Max(loads))
		}
	}
}

// TestDealGiants: the bins of a partition come with the heaviest first, and the
// bins of ranks in a row would give the first one all giants.
func TestDealGiants(t *testing.T) {
	const ranks, slots = 16, 8
	costs := modelCost("quad", draw("LN", 600, 1)) // item-bound
	var b balance.Balancer
	o := balance.Options{Bins: ranks * slots}
	bin, err := b.Partition(costs, o)
	if err != nil {
		t.Fatal(err)
	}
	loads := make([]int64, o.Bins)
	for i, at := range bin {
		loads[at] += costs[i]
	}
	bins, err := b.Deal(loads, ranks)
	if err != nil {
		t.Fatal(err)
	}
	row, dealt := make([]int64, ranks), make([]int64, ranks)
	for i := range loads {
		row[i/slots] += loads[i]
		dealt[i%ranks] += loads[bins[i]]
	}
	whole := make([]int32, len(loads))
	for i, bin := range bins {
		whole[bin] = int32(i % ranks)
	}
	q := checkPartition(t, loads, balance.Options{Bins: ranks, Equal: true}, whole)
	t.Logf("max/mean of ranks: %.3f in a row, %v", float64(slices.Max(row))/q.Mean(), q)
	if slices.Max(dealt) >= slices.Max(row) || q.Gap() > 0.1 {
		t.Errorf("max/mean of ranks: %.3f in a row, %v", float64(slices.Max(row))/q.Mean(), q)
	}
}

func TestDealErrors(t *testing.T) {
	var b balance.Balancer
	for _, test := range []struct {
		loads []int64
		ranks int
		want  string
	}{
		{make([]int64, 7), 2, "7 bins for 2 ranks"},
		{make([]int64, 7), 0, "7 bins for 0 ranks"},
		{[]int64{1, -2}, 2, "item 1 has cost -2"},
	} {
		if _, err := b.Deal(test.loads, test.ranks); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want an error with %q", err, test.want)
		}
	}
}
