package balance

import (
	"math"
	"math/bits"
)

// tournament finds the lightest bin, the lowest index among equals: a tree of
// losers over all bins (Knuth, The Art of Computer Programming 3, 5.4.1). A key
// holds a load above a bin's index, so that one comparison decides both.
//
// Loads are compared in units of 2^shift, so that any costs fit in 64 bits. The shift
// is 0 unless a single cost is near 2^63 / bins, and
// drops less than 2^-40 of the largest load.
type tournament struct {
	loser  []uint64 // loser[p]: the greater key of the match at node p; the root is 1
	winner []uint64 // scratch: of the match at each node
	lead   uint64   // the least key
	leaves int      // a power of two, at least the number of bins
	bits   uint     // of a bin's index
	shift  uint
}

const closed = math.MaxUint64 // the key of a bin that takes no more

// reset starts with empty bins, and room for loads up to most.
func (t *tournament) reset(bins int, most uint64) {
	t.bits = uint(bits.Len(uint(bins - 1)))
	t.shift = uint(max(0, bits.Len64(most)+int(t.bits)-63))
	t.leaves = 1 << t.bits
	t.loser = grow(t.loser, t.leaves)
	for p := 1; p < t.leaves; p++ {
		// The loser of empty bins is the first one of the right half.
		depth := uint(bits.Len(uint(p))) - 1
		span := t.leaves >> depth
		first := p<<(t.bits-depth) - t.leaves + span/2
		t.loser[p] = uint64(first)
		if first >= bins {
			t.loser[p] = closed
		}
	}
	t.lead = 0
}

// build starts with bins of the given loads, in units of 1, which must leave as
// many bits as an index has.
func (t *tournament) build(bins int, load func(bin int) uint64) {
	t.bits, t.shift = uint(bits.Len(uint(bins-1))), 0
	t.leaves = 1 << t.bits
	t.loser = grow(t.loser, t.leaves)
	t.winner = grow(t.winner, 2*t.leaves)
	for bin := range t.leaves {
		t.winner[t.leaves+bin] = closed
		if bin < bins {
			t.winner[t.leaves+bin] = load(bin)<<t.bits | uint64(bin)
		}
	}
	for p := t.leaves - 1; p > 0; p-- {
		a, b := t.winner[2*p], t.winner[2*p+1]
		t.winner[p], t.loser[p] = min(a, b), max(a, b)
	}
	t.lead = t.winner[1]
}

// lightest returns the bin that takes the next item.
func (t *tournament) lightest() int { return int(t.lead & uint64(t.leaves-1)) }

// add puts cost into the lightest bin.
func (t *tournament) add(cost int64) {
	t.replay(t.lead + uint64(cost)>>t.shift<<t.bits)
}

// set gives the lightest bin another load.
func (t *tournament) set(load uint64) { t.replay(load<<t.bits | uint64(t.lightest())) }

// close removes the lightest bin.
func (t *tournament) close() { t.replay(closed) }

// done reports whether all bins are closed.
func (t *tournament) done() bool { return t.lead == closed }

// replay plays the matches of the lightest bin again with its new key.
func (t *tournament) replay(key uint64) {
	loser := t.loser
	for p := (t.leaves + t.lightest()) >> 1; p > 0; p >>= 1 {
		other := loser[p]
		loser[p], key = max(other, key), min(other, key) // no branch to mispredict
	}
	t.lead = key
}

// lpt is the longest processing time rule (Graham 1969): items by decreasing
// cost, each to the lightest bin, the lowest index among equals. The largest load
// is at most 4/3 - 1/(3 bins) of the optimum. at[i] becomes the bin of items[i].
func (b *Balancer) lpt(items []costed, bins int, at []int32) {
	b.tree.reset(bins, mostLoad(items, bins))
	for i, it := range items {
		at[i] = int32(b.tree.lightest())
		b.tree.add(it.cost)
	}
}

// cappedLPT is lpt with equal counts: a bin takes no more when it has
// n / bins items, or one more for the first n mod bins that come so far.
func (b *Balancer) cappedLPT(items []costed, bins int, at []int32) {
	b.tree.reset(bins, mostLoad(items, bins))
	b.count = grow(b.count, bins)
	clear(b.count)
	quota, more := int32(len(items)/bins), len(items)%bins
	for i, it := range items {
		bin := b.tree.lightest()
		for b.count[bin] == quota && more == 0 {
			b.tree.close()
			bin = b.tree.lightest()
		}
		at[i] = int32(bin)
		b.count[bin]++
		if b.count[bin] <= quota {
			b.tree.add(it.cost)
			continue
		}
		more--
		b.tree.close()
	}
}

// mostLoad is no less than any bin's load while items are placed. The largest
// load of lpt is at most mean + largest. Until cappedLPT closes a bin it is lpt;
// what an open bin gets later is at most one item more than the closed one has,
// none of them larger, so below twice that and one item.
func mostLoad(items []costed, bins int) uint64 {
	if len(items) == 0 {
		return 0
	}
	load := uint64(totalCost(items)/int64(bins)) + uint64(items[0].cost) + 1
	if load > 1<<61 {
		return math.MaxInt64
	}
	return 3 * load
}
