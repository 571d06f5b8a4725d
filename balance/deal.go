package balance

import (
	"cmp"
	"fmt"
	"slices"
)

// Deal gives each of ranks ranks its share of bins with the given loads: entry
// slot x ranks + rank of the result is the bin that the rank works on in that
// microbatch slot, the heaviest slot first. Ranks that wait for each other in a slot have like
// work, no rank collects the heavy bins, and the ranks' sums are close to each other.
//
// It begins with slots of neighbours in the order of loads, which ranks leave soonest, and bins
// go to ranks by the largest differencing method. If the largest sum is not within one part in 2^11
// of a bound ([Quality].TightBound with equal counts), ranks exchange bins, first so that no slot gets longer, then so that slots
// get longer by a little. The result with the least [DealtCost] counts.
//
// Bins made by a partition are numbered by how it went, the heavy ones often
// first: without Deal, one rank would get them all. [Bitonic] of the slots gives them an
// order in time. The result belongs to the Balancer and is valid until the next call.
// Deal fails if the ranks do not divide the number of bins, and for loads
// that [Balancer.Partition] refuses as costs.
func (b *Balancer) Deal(loads []int64, ranks int) ([]int32, error) {
	if ranks < 1 || ranks > MaxBins || len(loads)%ranks != 0 {
		return nil, fmt.Errorf("%d bins for %d ranks; the ranks, 1 to %d, must divide the bins", len(loads), ranks, MaxBins)
	}
	if err := checkCosts(loads); err != nil {
		return nil, err
	}
	b.sort(loads)
	b.kk.blocks(&b.binSorter, b.items, ranks, b.at)
	b.bin = grow(b.bin, len(loads))
	if len(loads) > 0 {
		b.dealing.reset(b.items, b.at, ranks)
		b.dealing.even(&b.binSorter, b.bin)
	}
	return b.bin, nil
}

// DealtCost compares ways to deal the same bins: the less, the better. most is the largest sum of a
// rank, which no step ends before, and lockstep the sum, over slots, of the largest load,
// which a step takes in which ranks wait for each other after each slot. It is most / 2 + lockstep / 16: a
// slowest rank counts eight times as much, as it holds up every job.
func DealtCost(most, lockstep int64) int64 { return most/2 + lockstep/16 }

// dealing is bins that are given to ranks.
type dealing struct {
	ranks, slots int
	bins         []costed // rank x slots + slot; those of a rank by falling load
	sums         []int64  // per rank
	least        []int64  // per slot: the load of its longest bin, at the least
	limit        []int64  // per slot: what its bins may cost
	bound        int64    // of the largest sum, at the least
	mean         int64    // load of a bin
	order        []costed // ranks by falling sum
	effort       int      // bins that may still be looked at
}

const (
	dealtGoal   = 11      // sums are even enough at one part in 2^11 above their bound,
	dealtNearly = 12      // which exchanges aim a little below
	dealtFirst  = 10      // slots get longer by one part in 2^10 of the mean bin,
	dealtLast   = 5       // then by twice as much, up to one part in 2^5
	dealtEffort = 1 << 17 // bins looked at, and
	dealtEach   = 12      // for each bin
)

// reset deals items, given by falling cost, by blocks of as many as there are ranks.
func (d *dealing) reset(items []costed, at []int32, ranks int) {
	d.ranks, d.slots = ranks, len(items)/ranks
	d.bins, d.sums = grow(d.bins, len(items)), grow(d.sums, ranks)
	d.least, d.limit = grow(d.least, d.slots), grow(d.limit, d.slots)
	d.order = grow(d.order, ranks)
	clear(d.sums)
	for i, it := range items {
		d.bins[int(at[i])*d.slots+i/ranks] = it
		d.sums[at[i]] += it.cost
	}
	for slot := range d.least {
		d.least[slot] = items[slot*ranks].cost
	}
	d.bound, d.mean = tightBound(items, ranks, true), totalCost(items)/int64(len(items))
}

// even makes the ranks' sums even, and writes the best result.
func (d *dealing) even(s *sorter, to []int32) {
	best := d.cost()
	d.write(to)
	if d.slots < 2 || slices.Max(d.sums) <= d.bound+d.bound>>dealtNearly {
		return
	}
	for part := dealtFirst + 1; part >= dealtLast; part-- {
		for slot, least := range d.least {
			if d.limit[slot] = least; part <= dealtFirst {
				d.limit[slot] += d.mean >> part
			}
		}
		d.refine(s)
		if cost := d.cost(); cost < best {
			best = cost
			d.write(to)
		}
		if slices.Max(d.sums) <= d.bound+d.bound>>dealtGoal {
			return
		}
	}
}

// cost is that of the bins as they are dealt.
func (d *dealing) cost() int64 {
	lockstep := int64(0)
	for slot := range d.slots {
		most := int64(0)
		for k := slot; k < len(d.bins); k += d.slots {
			most = max(most, d.bins[k].cost)
		}
		lockstep += most
	}
	return DealtCost(slices.Max(d.sums), lockstep)
}

func (d *dealing) write(to []int32) {
	for k, it := range d.bins {
		to[k%d.slots*d.ranks+k/d.slots] = it.item
	}
}

// refine exchanges bins between ranks, in rounds: those that have too much, in the upper half between the
// bound and the largest sum, are each paired with the one that has least and is not paired yet. It
// ends near the bound, when the one that has most finds nothing to exchange, or when the effort
// is spent.
func (d *dealing) refine(s *sorter) {
	d.effort = dealtEffort + dealtEach*len(d.bins)
	for d.effort > 0 {
		for rank, sum := range d.sums {
			d.order[rank] = costed{sum, int32(rank)}
		}
		d.order = s.sort(d.order)
		d.effort -= d.ranks
		top := d.order[0].cost
		if top <= d.bound+d.bound>>dealtNearly || !relieve(d.order, d.bound+(top-d.bound)/2, d.exchange) {
			return
		}
	}
}

// exchange makes the exchange that brings the sums of two ranks closest together: of one bin for another, or
// of what both have in two slots. It reports whether there is one.
func (d *dealing) exchange(heavy, light int32) bool {
	if d.effort <= 0 {
		return false
	}
	h := d.bins[int(heavy)*d.slots : int(heavy+1)*d.slots]
	l := d.bins[int(light)*d.slots : int(light+1)*d.slots]
	best := dealtSwap{gap: d.sums[heavy] - d.sums[light], miss: d.sums[heavy] - d.sums[light], limit: d.limit}
	best.one(h, l)
	best.two(h, l)
	d.effort -= d.slots * d.slots
	if best.count == 0 {
		return false
	}
	for k := range best.count {
		x, y := &h[best.out[k]], &l[best.in[k]]
		d.sums[heavy] -= x.cost - y.cost
		d.sums[light] += x.cost - y.cost
		*x, *y = *y, *x
	}
	for _, side := range [2][]costed{h, l} {
		slices.SortFunc(side, func(a, b costed) int { return cmp.Or(cmp.Compare(b.cost, a.cost), cmp.Compare(a.item, b.item)) })
	}
	return true
}

// dealtSwap is an exchange of bins of two ranks.
type dealtSwap struct {
	gap     int64   // between their sums
	miss    int64   // by how much the shift misses half of the gap, doubled
	limit   []int64 // per slot
	count   int     // of bins; none yet
	out, in [2]int  // slots
}

func (s *dealtSwap) consider(shift int64, fits func() bool, count int, out, in [2]int) {
	if miss := abs(s.gap - 2*shift); miss < s.miss && fits() {
		s.miss, s.count, s.out, s.in = miss, count, out, in
	}
}

// one looks for one bin in return for another that costs less.
func (s *dealtSwap) one(h, l []costed) {
	for i, x := range h {
		for j := len(l) - 1; j >= 0 && l[j].cost < x.cost; j-- {
			s.consider(x.cost-l[j].cost, func() bool { return s.takes(l, x.cost, j) }, 1, [2]int{i}, [2]int{j})
		}
	}
}

// takes reports whether a rank can take a bin for one that costs less: each of its bins that cost between them goes
// to the next slot.
func (s *dealtSwap) takes(l []costed, cost int64, given int) bool {
	for k := given; k > 0; k-- {
		if l[k-1].cost >= cost {
			return cost <= s.limit[k]
		}
		if l[k-1].cost > s.limit[k] {
			return false
		}
	}
	return cost <= s.limit[0]
}

// two looks for two slots in which to exchange bins.
func (s *dealtSwap) two(h, l []costed) {
	for i := range h {
		for j := i + 1; j < len(h); j++ {
			at := [2]int{i, j}
			s.consider(h[i].cost-l[i].cost+h[j].cost-l[j].cost, func() bool { return true }, 2, at, at)
		}
	}
}
