package balance

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// sortedItems returns n items by decreasing cost, of costs below limit.
func sortedItems(rng *rand.Rand, n int, limit int64) []costed {
	items := make([]costed, n)
	for i := range items {
		items[i] = costed{rng.Int64N(limit), int32(i)}
	}
	return new(sorter).sort(items)
}

func TestSort(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var s sorter
	for _, n := range []int{0, 1, 2, 255, 256, 300, 2047, 2048, 5000} {
		for _, limit := range []int64{1, 2, 300, 1 << 20, 1 << 52, 1 << 62} {
			entries := make([]costed, n)
			for i := range entries {
				entries[i] = costed{rng.Int64N(limit), int32(i)}
			}
			want := slices.Clone(entries)
			slices.SortStableFunc(want, func(a, b costed) int { return cmp.Compare(b.cost, a.cost) })
			if got := s.sort(entries); !slices.Equal(got, want) {
				t.Errorf("%d entries below %d are not in order", n, limit)
			}
		}
	}
}

// TestLPTRule compares the tournament with the rule it stands for: a look at
// every bin for every item.
func TestLPTRule(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var b Balancer
	for range 300 {
		n, bins := rng.IntN(200), 1+rng.IntN(40)
		items := sortedItems(rng, n, 1+rng.Int64N([]int64{3, 100, 1 << 40}[rng.IntN(3)]))
		for _, equal := range []bool{false, true} {
			at := make([]int32, n)
			if equal {
				b.cappedLPT(items, bins, at)
			} else {
				b.lpt(items, bins, at)
			}
			if want := slowLPT(items, bins, equal); !slices.Equal(at, want) {
				t.Fatalf("%d items in %d bins, equal %v: %v, want %v", n, bins, equal, at, want)
			}
		}
	}
}

func slowLPT(items []costed, bins int, equal bool) []int32 {
	load, count := make([]int64, bins), make([]int, bins)
	more := len(items) % bins
	at := make([]int32, len(items))
	for i, it := range items {
		best := -1
		for bin := range bins {
			full := equal && (count[bin] > len(items)/bins || count[bin] == len(items)/bins && more == 0)
			if !full && (best < 0 || load[bin] < load[best]) {
				best = bin
			}
		}
		if count[best] == len(items)/bins {
			more--
		}
		load[best] += it.cost
		count[best]++
		at[i] = int32(best)
	}
	return at
}

// TestLPTHugeCosts is where loads and bin indexes do not fit into 64 bits
// together, so that loads are compared in larger units.
func TestLPTHugeCosts(t *testing.T) {
	items := make([]costed, 3000)
	for i := range items {
		items[i] = costed{MaxTotal / 3000, int32(i)}
	}
	items[0].cost += MaxTotal % 3000
	var b Balancer
	at := make([]int32, len(items))
	b.lpt(items, 1000, at)
	b.bins.reset(items, at, 1000)
	for bin, size := range b.bins.size {
		if size != 3 {
			t.Fatalf("bin %d has %d of 3000 equal items, want 3", bin, size)
		}
	}
}

// TestDifferencingRule compares the sums of sparse differencing with the dense
// method, for costs whose spreads are never equal.
func TestDifferencingRule(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var d differencing
	var s sorter
	for range 200 {
		n, bins := 1+rng.IntN(150), 2+rng.IntN(30)
		items := sortedItems(rng, n, 1<<50)
		if rng.IntN(2) == 0 {
			items[0].cost += 1 << 54 // a giant
		}
		for _, equal := range []bool{false, true} {
			at := make([]int32, n)
			states := [][]int64{}
			if equal {
				d.blocks(&s, items, bins, at)
				for first := 0; first < n; first += bins {
					states = append(states, dense(bins, items[first:min(n, first+bins)]...))
				}
			} else {
				d.partition(&s, items, bins, at)
				for i := range items {
					states = append(states, dense(bins, items[i]))
				}
			}
			got, want := make([]int64, bins), slowDifferencing(states)
			for i, it := range items {
				got[at[i]] += it.cost
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("%d items in %d bins, equal %v: sums %v, want %v", n, bins, equal, got, want)
			}
		}
	}
}

func dense(bins int, items ...costed) []int64 {
	sums := make([]int64, bins)
	for i, it := range items {
		sums[i] = it.cost
	}
	return sums
}

// slowDifferencing merges states, sums by decreasing value, until one is left.
func slowDifferencing(states [][]int64) []int64 {
	byWidth := func(a, b []int64) int { return cmp.Compare(b[0]-b[len(b)-1], a[0]-a[len(a)-1]) }
	for len(states) > 1 {
		slices.SortStableFunc(states, byWidth)
		first, second := states[0], states[1]
		for i := range first {
			first[i] += second[len(second)-1-i]
		}
		slices.SortFunc(first, func(a, b int64) int { return cmp.Compare(b, a) })
		states = append([][]int64{first}, states[2:]...)
	}
	return states[0]
}

// TestRefineExchange looks for a better move or swap than the walk over two
// sorted bins finds, among all there are.
func TestRefineExchange(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var c contents
	for range 500 {
		n := 2 + rng.IntN(20)
		items := sortedItems(rng, n, 1+rng.Int64N(1000))
		at := make([]int32, n)
		for i := range at {
			at[i] = int32(rng.IntN(2))
		}
		c.reset(items, at, 2)
		c.equal = rng.IntN(2) == 0
		heavy, light := int32(0), int32(1)
		if c.load[0] < c.load[1] {
			heavy, light = 1, 0
		}
		gap := c.load[heavy] - c.load[light]
		want := gap
		for _, a := range c.items(heavy) {
			if !c.equal || c.size[heavy] > c.size[light] {
				want = min(want, max(gap-2*a.cost, 2*a.cost-gap))
			}
			for _, b := range c.items(light) {
				shift := a.cost - b.cost
				want = min(want, max(gap-2*shift, 2*shift-gap))
			}
		}
		done := c.level(heavy, light)
		got := max(c.load[0]-c.load[1], c.load[1]-c.load[0])
		if got != want || done != (want < gap) {
			t.Fatalf("loads differ by %d after the exchange, from %d; %d is possible", got, gap, want)
		}
		for bin := range int32(2) {
			if !slices.IsSortedFunc(c.items(bin), func(a, b costed) int { return cmp.Compare(b.cost, a.cost) }) {
				t.Fatalf("bin %d is out of order: %v", bin, c.items(bin))
			}
		}
	}
}
