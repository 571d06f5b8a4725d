package balance

import "fmt"

// Quality measures how even a partition is, and how even it can be. Loads and bounds
// are in the unit of the costs.
type Quality struct {
	Items, Bins        int
	MinItems, MaxItems int   // of a bin
	Min, Max, Total    int64 // loads
	// LowerBound is the larger of the mean load, rounded up, and the largest cost:
	// no partition has a smaller Max.
	LowerBound int64
	// TightBound also counts what must share a bin: of j x bins + 1 items some bin
	// gets j + 1, and with equal counts the largest items are joined by the smallest ones.
	TightBound int64
	// ItemBound: single items, not the mean, decide TightBound; splitting
	// or delaying them would help, another partition would not.
	ItemBound bool
}

// Mean is the mean load.
func (q Quality) Mean() float64 { return float64(q.Total) / float64(max(1, q.Bins)) }

// Imbalance is the largest load over the mean one: 1 is even. It is 1 if all costs are 0.
func (q Quality) Imbalance() float64 {
	if q.Total == 0 {
		return 1
	}
	return float64(q.Max) / q.Mean()
}

// Gap is how far the largest load is above TightBound, as a part of it: 0 is optimal.
func (q Quality) Gap() float64 {
	if q.TightBound == 0 {
		return 0
	}
	return float64(q.Max-q.TightBound) / float64(q.TightBound)
}

func (q Quality) String() string {
	note := ""
	if q.ItemBound {
		note = ", item-bound"
	}
	return fmt.Sprintf("%d items in %d bins: max/mean %.4f, %.2g above the bound%s", q.Items, q.Bins, q.Imbalance(), q.Gap(), note)
}

// Evaluate measures a partition of items with the given costs into o.Bins
// bins. Of the options only Bins and Equal matter: with Equal the bound is that of
// partitions with equal counts. bin may be the result of this Balancer, which stays valid.
// Evaluate fails where [Balancer.Partition] would, and for a bin out of range.
func (b *Balancer) Evaluate(costs []int64, bin []int32, o Options) (Quality, error) {
	q := Quality{Items: len(costs), Bins: o.Bins}
	if err := o.check(len(costs)); err != nil {
		return q, err
	}
	if err := checkCosts(costs); err != nil {
		return q, err
	}
	if len(bin) != len(costs) {
		return q, fmt.Errorf("%d items have %d bins; each item needs one", len(costs), len(bin))
	}
	load := grow(b.bins.load, o.Bins)
	count := grow(b.count, o.Bins)
	b.bins.load, b.count = load, count
	clear(load)
	clear(count)
	for i, at := range bin {
		if at < 0 || int(at) >= o.Bins {
			return q, fmt.Errorf("item %d is in bin %d; bins are 0 to %d", i, at, o.Bins-1)
		}
		load[at] += costs[i]
		count[at]++
		q.Total += costs[i]
	}
	q.Min, q.Max = load[0], load[0]
	q.MinItems, q.MaxItems = int(count[0]), int(count[0])
	for i := range load {
		q.Min, q.Max = min(q.Min, load[i]), max(q.Max, load[i])
		q.MinItems, q.MaxItems = min(q.MinItems, int(count[i])), max(q.MaxItems, int(count[i]))
	}
	b.sort(costs)
	mean := ceilDiv(q.Total, o.Bins)
	q.LowerBound = mean
	if len(b.items) > 0 {
		q.LowerBound = max(mean, b.items[0].cost)
	}
	q.TightBound = tightBound(b.items, o.Bins, o.Equal)
	q.ItemBound = q.TightBound > mean
	return q, nil
}

// maxShare limits the items of a bin that tightBound considers: with more items a
// bin, the mean is the better bound.
const maxShare = 16

// tightBound is a load that no partition of items, given by decreasing cost,
// stays below. Of the first share x bins + 1 items some bin has share + 1, and the
// last ones are the least it can have.
func tightBound(items []costed, bins int, equal bool) int64 {
	if len(items) == 0 {
		return 0
	}
	bound := max(ceilDiv(totalCost(items), bins), items[0].cost)
	for share := 1; share <= maxShare && share*bins < len(items); share++ {
		shared := totalCost(items[share*bins-share : share*bins+1])
		if others := len(items)/bins - share - 1; equal && others > 0 {
			shared += totalCost(items[len(items)-others:])
		}
		bound = max(bound, shared)
	}
	if equal {
		bound = max(bound, equalBound(items, bins))
	}
	return bound
}

// equalBound is what equal counts add to the bound: the largest items need the
// smallest ones to fill up their bins, and these run out. Either two of
// the m largest share a bin, with the smallest items of all, or they are in m
// bins, which have m x (quota - 1) other items and some bin of them at least the mean.
func equalBound(items []costed, bins int) int64 {
	quota := len(items) / bins
	if quota == 0 {
		return 0
	}
	bound, total := int64(0), int64(0)
	pair := totalCost(items[len(items)-max(0, quota-2):])
	rest := len(items)
	for m := 1; m <= bins; m++ {
		total += items[m-1].cost + totalCost(items[rest-(quota-1):rest])
		rest -= quota - 1
		least := ceilDiv(total, m)
		if m > 1 {
			least = min(least, pair+items[m-2].cost+items[m-1].cost)
		}
		bound = max(bound, least)
	}
	return bound
}

func totalCost(items []costed) int64 {
	total := int64(0)
	for _, it := range items {
		total += it.cost
	}
	return total
}

func ceilDiv(a int64, b int) int64 {
	q := a / int64(b)
	if a%int64(b) > 0 {
		q++
	}
	return q
}
