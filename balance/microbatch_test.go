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

// lockstep returns the sum over slots of the largest load, and what it may be: each slot is longer than
// it must be by no more than 1/32 of the mean bin.
func lockstep(loads []int64, bins []int32, ranks int) (longest, allowed int64) {
	sorted, total := slices.Sorted(slices.Values(loads)), int64(0)
	for _, load := range loads {
		total += load
	}
	for first := 0; first < len(bins); first += ranks {
		most := int64(0)
		for _, bin := range bins[first : first+ranks] {
			most = max(most, loads[bin])
		}
		longest += most
		allowed += sorted[len(sorted)-1-first] + total/int64(len(loads))/32
	}
	return longest, allowed
}

// TestDealGoals is the goal for quality: ranks are even to 0.05 % where bins differ by some percent, and
// slots take 0.5 % longer than they must.
func TestDealGoals(t *testing.T) {
	const ranks, slots = 64, 8
	var b balance.Balancer
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 35))
		loads, four := make([]int64, ranks*slots), []int64{118_000, 105_000, 95_000, 90_000}
		for i := range loads {
			loads[i] = 90_000 + rng.Int64N(20_000)
			if seed%2 == 1 { // as rows of few samples of few lengths
				loads[i] = four[rng.IntN(4)] + rng.Int64N(4000)
			}
		}
		bins, err := b.Deal(loads, ranks)
		if err != nil {
			t.Fatal(err)
		}
		sums, total := make([]int64, ranks), int64(0)
		for i, bin := range bins {
			sums[i%ranks] += loads[bin]
			total += loads[bin]
		}
		longest, allowed := lockstep(loads, bins, ranks)
		least := float64(allowed) - float64(total)/ranks/32
		toMean, toLeast := float64(slices.Max(sums))*ranks/float64(total), float64(longest)/least
		t.Logf("seed %d: ranks %.5f of the mean, slots %.5f of the least", seed, toMean, toLeast)
		if toMean > 1.0005 || toLeast > 1.005 {
			t.Errorf("seed %d: ranks %.5f of the mean, want 1.0005; slots %.5f of the least, want 1.005", seed, toMean, toLeast)
		}
	}
}

// TestDeal: every rank gets as many bins, each bin once; slots are hardly longer
// than they must be; no rank collects the heavy bins.
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
		if longest, allowed := lockstep(loads, bins, ranks); longest > allowed {
			t.Fatalf("slots take %d, want %d at most: %v of %v", longest, allowed, bins, loads)
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
