package balance

// capBound returns a cost from least to most that the heaviest bin cannot go below for
// what the cap forbids, to a part in 2^14.
//
// Let rate be no more than the cost of a token of any item. An item has the excess
// cost - rate x tokens. A bin that costs at most M, and whose items have the excess X,
// holds at most (M - X) / rate tokens, so it leaves (X - spare) / rate of its capacity
// free, where spare is M - rate x capacity. All bins together have to leave no more
// than there is.
func (e *Evener) capBound(least, most int64) int64 {
	rate, tokens := int64(1)<<62, int64(0)
	for _, items := range [2][]sized{e.order, e.fixed} {
		for i := range items {
			rate = min(rate, items[i].cost/int64(max(items[i].tokens, 1)))
			tokens += int64(items[i].tokens)
		}
	}
	room := int64(len(e.bins)) * int64(e.capacity)
	if rate == 0 || rate > (1<<62)/room {
		return least
	}
	for most-least > least>>14 {
		mid := least + (most-least)/2
		if e.fits(mid, rate, room-tokens) {
			most = mid
		} else {
			least = mid + 1
		}
	}
	return least
}

// fits reports false if no bin can cost at most `most`.
func (e *Evener) fits(most, rate, free int64) bool {
	spare, need := most-rate*int64(e.capacity), int64(0)
	if spare < 0 {
		if need = -spare; need > rate*free/int64(len(e.bins)) {
			return false
		}
		need, spare = need*int64(len(e.bins)), 0
	}
	for _, items := range [2][]sized{e.order, e.fixed} {
		for i := range items {
			need += max(0, items[i].cost-rate*int64(items[i].tokens)-spare)
		}
	}
	return need <= rate*free
}
