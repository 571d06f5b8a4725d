package balance

import "slices"

// EvenPastItemBound is [Evener.Even] that does not stop at the item bound: where a
// single item makes the heaviest bin, Even has nothing left to lower, though the
// other bins may still differ a lot. Bins with an item that costs more than the
// mean bin are then left as they are, and the others are evened among themselves.
// Contract and errors are those of Even. It allocates a few slices with an entry
// per bin or item.
func (e *Evener) EvenPastItemBound(tokens []int32, costs []int64, bin []int32, capacity int32, bins int) error {
	if err := e.reset(tokens, costs, bin, capacity, bins); err != nil {
		return err
	}
	if len(costs) == 0 || bins < 2 {
		return nil
	}
	if e.heaviest() > slices.Max(costs) {
		e.even(bin, bins)
	}
	loads := loadsOf(costs, bin, bins)
	rest := notItemBound(costs, bin, loads)
	if len(rest) == bins {
		return nil
	}
	number := make([]int32, bins) // bin -> its number among the rest
	for b := range number {
		number[b] = Unplaced
	}
	for n, b := range rest {
		number[b] = int32(n)
	}
	at := make([]int32, len(bin))
	for i, b := range bin {
		if at[i] = Unplaced; b >= 0 {
			at[i] = number[b]
		}
	}
	e.even(at, len(rest))
	for i, n := range at {
		if n >= 0 {
			bin[i] = rest[n]
		}
	}
	return nil
}

// loadsOf returns the cost of each bin.
func loadsOf(costs []int64, bin []int32, bins int) []int64 {
	loads := make([]int64, max(bins, 1))
	for i, b := range bin {
		if b >= 0 {
			loads[b] += costs[i]
		}
	}
	return loads
}

// notItemBound returns, in ascending order, the bins without an item that costs
// more than the mean of these bins.
func notItemBound(costs []int64, bin []int32, loads []int64) []int32 {
	itemBound, left, total := make([]bool, len(loads)), int64(len(loads)), int64(0)
	for _, cost := range loads {
		total += cost
	}
	for before := int64(0); before != left && left > 0; {
		before = left
		mean := total / left
		for i, b := range bin {
			if b >= 0 && costs[i] > mean && !itemBound[b] {
				itemBound[b] = true
				left--
				total -= loads[b]
			}
		}
	}
	var rest []int32
	for b := range loads {
		if !itemBound[b] {
			rest = append(rest, int32(b))
		}
	}
	return rest
}
