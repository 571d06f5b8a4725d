package balance

// partition assigns the placed items, in trial and the bins, by cost alone, as
// [Balancer.Partition] does by [MethodLPT]. It reports whether that keeps the cap: it
// often does where bins hold many items and there is some room.
func (e *Evener) partition(bin []int32, bins int, bound int64) bool {
	if len(e.fixed) > 0 {
		return false
	}
	b := &e.uncapped
	b.items = grow(b.items, len(e.items))[:0]
	for i := range e.items {
		if bin[i] != Unplaced {
			b.items = append(b.items, costed{e.items[i].cost, int32(i)})
		}
	}
	b.items = b.sorter.sort(b.items)
	b.at = grow(b.at, len(b.items))
	b.lpt(b.items, bins, b.at)
	e.trial = append(e.trial[:0], bin...)
	for k, it := range b.items {
		e.trial[it.item] = b.at[k]
	}
	if e.load(e.trial, bins); e.over() {
		return false
	}
	b.bins.reset(b.items, b.at, bins)
	b.bins.refine(&b.binSorter, bound, e.nearly(bound), false)
	b.bins.write(e.trial)
	e.load(e.trial, bins)
	return !e.over()
}

// over reports whether a bin holds more than its capacity.
func (e *Evener) over() bool {
	for b := range e.bins {
		if e.bins[b].room < 0 {
			return true
		}
	}
	return false
}
