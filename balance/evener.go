package balance

import (
	"fmt"
	"math"
	"slices"
)

// Evener makes the costs of bins even while it keeps their token cap. It holds
// the scratch memory of one call, reused by the next. The zero value is ready.
// An Evener is not safe for concurrent use.
type Evener struct {
	// Thorough has many items evened with as much work as few, and ends where the cap
	// leaves no better result. Without it results are those of jobs that were made
	// before there was a choice.
	Thorough bool

	items     []sized // by index
	costliest int64   // of the items, those in no bin too
	order     []sized // placed items by decreasing tokens, equal ones by index
	capacity  int32   // tokens
	bins      []cappedBin
	next      []int32 // per item, the next one of its bin in the order
	effort    int     // items that may still be looked at
	sorter    sorter
	byTokens  tokenSorter
	tree      tournament
	states    []binState // of the bins
	entries   []costed   // scratch of sorting, and bins by decreasing cost
	trial     []int32    // the bins of another start
	kept      []int32    // of the best one so far
	deferred  []int32    // items that no open bin had room for
	lights    []int32    // bins to relieve heavy ones
	union     []sized    // the items of two bins
	sides     [2]cappedBin
	fixed     []sized // what each bin holds that stays there; none if it is empty
	part      part
	uncapped  Balancer
}

// sized is an item's size in both units.
type sized struct {
	cost   int64
	tokens int32
	index  int32
}

// manyItems is the number of items above which time matters more than the last
// tenth of a percent.
const manyItems = 1 << 16

func (e *Evener) many() bool { return len(e.items) > manyItems }

// twoStarts is the number of items up to which both starts are refined; above it,
// bin itself is refined only if the new packing fails.
const twoStarts = 1 << 14

// Even moves items between bins so that the largest cost of a bin gets small
// while no bin holds more than capacity tokens. tokens (1 to capacity) and costs
// (0 and more, in any unit, less than 2^62 together) say the size of each item.
// bin has the bin of each, 0 to bins-1, and is changed in place; an item that is
// [Unplaced] stays so, all others stay placed. The largest cost never grows; if
// nothing lowers it, bin is left as it was.
//
// There are two starts. One packs the items from scratch: the longest first, each to
// the bin that would cost least when full, among bins that the cap will close; then
// to the one that costs least, among bins that their cost will close; and the last
// few to the least full one. The other start is bin itself. Both are refined, and
// the better result is kept, or, if e.Thorough, first of all a partition that looks at
// no cap, if it happens to keep it: round after round, heavy and light bins are paired and
// exchange one item for none, one for one, or one for two, whichever brings the
// pair's costs closest. Where cost grows faster than length, two short items cost less
// than one item of as many tokens, so full bins can be evened too. At the end the
// heaviest bins, one by one, also exchange two items, or divide all items again with
// a light bin. With more than 16,384 items, bin itself is refined only if the new
// packing fails.
//
// Where single items cost more than the mean bin, the bins that hold them are left as
// they are in the end, and the others are evened among themselves: a heavy bin is in
// one microbatch, and in the others its rank waits for the others.
//
// Even ends where the largest cost is within 1/16384 of a bound (the mean, or the
// largest item; if e.Thorough, also what full bins cost at the least), and after a
// number of items looked at: it is bounded by the sizes, never by a clock. With more
// than 65,536 items it is 1/2048, as no model of costs is more exact, and, unless
// e.Thorough, an eighth of the work.
//
// Even fails, with bin unchanged, if an item or bin is out of range or a bin
// holds more than its capacity. Everything is integer arithmetic with ties by
// index. Nothing is allocated once the scratch has grown.
func (e *Evener) Even(tokens []int32, costs []int64, bin []int32, capacity int32, bins int) error {
	e.fixed = e.fixed[:0]
	if err := e.reset(tokens, costs, bin, capacity, bins); err != nil {
		return err
	}
	e.evenAll(bin, bins)
	return nil
}

// evenAll is Even for bins that reset has checked.
func (e *Evener) evenAll(bin []int32, bins int) {
	if len(e.items) == 0 || bins < 2 {
		return
	}
	total, largest := e.total(), e.largest(bin)
	if e.heaviest() > max(largest, e.costliest) {
		e.even(bin, bins, largest)
	}
	if largest > total/int64(bins) { // else no item binds a bin
		e.evenRest(bin, bins)
	}
}

// even evens bins, or a part of them, whose items are loaded. largest is the cost of the largest item.
func (e *Evener) even(bin []int32, bins int, largest int64) {
	bound, start := max(largest, ceilDiv(e.total(), len(e.bins))), e.heaviest()
	if bins < 2 || start <= e.nearly(bound) {
		return
	}
	e.sort(bin)
	work := effort
	if e.many() && !e.Thorough {
		work = effortOfMany
	}
	best := start
	if e.Thorough {
		if e.partition(bin, bins, bound) {
			best = e.keep(best, e.refine(e.trial, bound, work))
		}
		if best > e.nearly(bound) {
			bound = e.capBound(bound, best)
		}
	}
	if best > e.nearly(bound) {
		spread := e.spread(bin, bins)
		if spread {
			best = e.keep(best, e.refine(e.trial, bound, work))
		}
		if !spread || best > e.nearly(bound) && len(e.items) <= twoStarts {
			e.load(bin, bins)
			if e.refine(bin, bound, effort) < best {
				e.unload(bin)
				return
			}
		}
	}
	if best < start {
		copy(bin, e.kept)
	}
}

// keep keeps the trial if its largest cost is less than the best, and returns the better.
func (e *Evener) keep(best, most int64) int64 {
	if most < best {
		e.unload(e.trial)
		e.kept, e.trial = e.trial, e.kept
	}
	return min(best, most)
}

func (e *Evener) reset(tokens []int32, costs []int64, bin []int32, capacity int32, bins int) error {
	if err := check(tokens, 0, capacity); err != nil {
		return err
	}
	if len(costs) != len(tokens) || len(bin) != len(tokens) {
		return fmt.Errorf("%d costs and %d bins of items for the tokens of %d; each item needs all three", len(costs), len(bin), len(tokens))
	}
	if bins < 0 || bins > math.MaxInt32 {
		return fmt.Errorf("%d bins; 0 to %d are possible", bins, math.MaxInt32)
	}
	e.items, e.order, e.capacity = grow(e.items, len(tokens)), e.order[:0], capacity
	left := int64(1)<<62 - 1
	e.costliest = 0
	for i, c := range costs {
		if c < 0 || c > left {
			return fmt.Errorf("item %d has cost %d; costs are 0 and more, and less than 2^62 together", i, c)
		}
		left -= c
		e.costliest = max(e.costliest, c)
		e.items[i] = sized{c, tokens[i], int32(i)}
		if bin[i] < Unplaced || int(bin[i]) >= bins {
			return fmt.Errorf("item %d is in bin %d; bins are 0 to %d, or %d for none", i, bin[i], bins-1, Unplaced)
		}
	}
	e.load(bin, bins)
	for b := range e.bins {
		if e.bins[b].room < 0 {
			return fmt.Errorf("bin %d holds more than its capacity of %d tokens", b, capacity)
		}
	}
	return nil
}

// load sets cost and room of the bins from bin; items are not listed.
func (e *Evener) load(bin []int32, bins int) {
	e.empty(bins)
	for i, b := range bin {
		if b != Unplaced {
			c, it := &e.bins[b], &e.items[i]
			c.cost += it.cost
			if c.room >= 0 { // else the cap is broken, which is all that is checked
				c.room -= it.tokens
			}
		}
	}
}

// sort lists the placed items by decreasing tokens. Calls after the first since a
// reset drop the items that are no longer placed.
func (e *Evener) sort(bin []int32) {
	if len(e.order) > 0 {
		e.order = slices.DeleteFunc(e.order, func(it sized) bool { return bin[it.index] == Unplaced })
		return
	}
	e.order = e.byTokens.sort(e.items, bin, e.order)
}

// nearly returns a cost close enough to the bound to stop at.
func (e *Evener) nearly(bound int64) int64 {
	if e.many() {
		return bound + bound>>11
	}
	return bound + bound>>14
}

func (e *Evener) heaviest() (cost int64) {
	for b := range e.bins {
		cost = max(cost, e.bins[b].cost)
	}
	return cost
}

// total returns what all bins cost.
func (e *Evener) total() (cost int64) {
	for b := range e.bins {
		cost += e.bins[b].cost
	}
	return cost
}

// largest returns the cost of the largest item with a bin, or of what a bin holds that stays there.
func (e *Evener) largest(bin []int32) (cost int64) {
	for i, b := range bin {
		if b != Unplaced {
			cost = max(cost, e.items[i].cost)
		}
	}
	for i := range e.fixed {
		cost = max(cost, e.fixed[i].cost)
	}
	return cost
}
