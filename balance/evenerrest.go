package balance

// part is the bins that are evened without those that single items bind.
type part struct {
	bound  []bool  // per bin: an item in it costs more than the mean
	bins   []int32 // the others, in ascending order
	number []int32 // of each bin among them
	at     []int32 // of each item: the number of its bin
	fixed  []sized // of the bins
}

// evenRest evens the bins that no single item binds among themselves.
func (e *Evener) evenRest(bin []int32, bins int) {
	p := &e.part
	e.load(bin, bins)
	if e.unbound(bin); len(p.bins) == bins {
		return
	}
	p.number, p.at = grow(p.number, bins), grow(p.at, len(bin))
	for b := range p.number {
		p.number[b] = Unplaced
	}
	all := e.fixed
	p.fixed = p.fixed[:0]
	for n, b := range p.bins {
		p.number[b] = int32(n)
		if len(all) > 0 {
			p.fixed = append(p.fixed, all[b])
		}
	}
	for i, b := range bin {
		if p.at[i] = Unplaced; b >= 0 {
			p.at[i] = p.number[b]
		}
	}
	e.fixed = p.fixed
	e.load(p.at, len(p.bins))
	e.even(p.at, len(p.bins), e.largest(p.at))
	e.fixed, p.fixed = all, e.fixed
	for i, n := range p.at {
		if n >= 0 {
			bin[i] = p.bins[n]
		}
	}
}

// unbound lists the bins without an item, or a part that stays there, that costs more
// than the mean of these bins. There is always one: its item costs no more than it.
func (e *Evener) unbound(bin []int32) {
	p := &e.part
	p.bound, p.bins = grow(p.bound, len(e.bins)), p.bins[:0]
	clear(p.bound)
	left, total := int64(len(e.bins)), int64(0)
	for b := range e.bins {
		total += e.bins[b].cost
	}
	for before := int64(0); before != left; {
		before = left
		mean := total / left
		for i, b := range bin {
			if b >= 0 && e.items[i].cost > mean && !p.bound[b] {
				p.bound[b] = true
				left, total = left-1, total-e.bins[b].cost
			}
		}
		for b := range e.fixed {
			if e.fixed[b].cost > mean && !p.bound[b] {
				p.bound[b] = true
				left, total = left-1, total-e.bins[b].cost
			}
		}
	}
	for b, bound := range p.bound {
		if !bound {
			p.bins = append(p.bins, int32(b))
		}
	}
}
