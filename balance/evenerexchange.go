package balance

import (
	"cmp"
	"slices"
)

const (
	evenRounds   = 64 // rounds at most, of each kind
	evenWindow   = 4  // rounds that have to lower the largest cost
	evenGain     = 11 // by one part in 2^11 of the bound
	pairSteps    = 4  // exchanges of a pair in a round
	evenPartners = 24 // light bins that a heavy one is paired with in a deep search
	deepItems    = 48 // items of a bin at most for a deep search
	windowItems  = 3  // second items looked at, for a pair of first ones

	effort        = 1 << 24 // items looked at
	effortOfMany  = 1 << 21
	resplitEffort = 16 // per item of two bins whose items are divided again
)

// refine pairs heavy bins with light ones and exchanges items, until
// the heaviest is nearly at the bound or hardly gets lighter. Every other round
// pairs with light bins that have room. Then only the heaviest bins are searched, and
// deeper, until one is reached that no light bin can relieve. Effort is roughly the
// number of items looked at. It returns the largest cost.
func (e *Evener) refine(bin []int32, bound int64, effort int) int64 {
	most := e.heaviest()
	if most <= e.nearly(bound) {
		return most
	}
	e.link(bin)
	e.effort = effort
	for round, before := 0, most; round < evenRounds && most > e.nearly(bound); round++ {
		e.pairUp(round, max(e.nearly(bound), bound+(most-bound)/4), false)
		most = e.heaviest()
		if round%evenWindow == evenWindow-1 {
			if before-most < bound>>evenGain {
				break
			}
			before = most
		}
	}
	for round := 0; round < evenRounds && most > e.nearly(bound); round++ {
		if !e.pairUp(round, max(e.nearly(bound), most-(most-bound)/8), true) {
			break
		}
		most = e.heaviest()
	}
	return most
}

// pairUp pairs the bins above a cost with the lightest ones. A deep search stops
// at a bin that no partner can relieve; pairUp returns false then.
func (e *Evener) pairUp(round int, above int64, deep bool) bool {
	e.entries = grow(e.entries, len(e.bins))
	for b := range e.bins {
		e.entries[b] = costed{e.bins[b].cost, int32(b)}
	}
	e.entries = e.sorter.sort(e.entries)
	e.lights = e.lights[:0]
	for i := len(e.entries) - 1; i >= 0 && e.entries[i].cost < above; i-- {
		if b := e.entries[i].item; deep || round%2 == 0 || e.bins[b].room >= e.capacity/256 {
			e.lights = append(e.lights, b)
		}
	}
	for i := 0; e.effort > 0 && len(e.lights) > 0 && e.entries[i].cost > above; i++ {
		heavy := e.entries[i].item
		if deep {
			if !e.relieve(heavy, i) {
				return false
			}
			continue
		}
		light := e.lights[(i+round/2)%len(e.lights)]
		for range pairSteps {
			if !e.exchange(heavy, light, false) {
				break
			}
		}
	}
	return true
}

// relieve exchanges items of a heavy bin with one of several light ones, or
// divides the items of both again.
func (e *Evener) relieve(heavy int32, turn int) bool {
	for k := range min(evenPartners, len(e.lights)) {
		light := e.lights[(turn+k)%len(e.lights)]
		if e.exchange(heavy, light, true) || e.resplit(heavy, light) {
			return true
		}
	}
	return false
}

// resplit divides the items of two bins again, the costliest first, each to the
// side of less cost. If that breaks the cap of one side, an exchange has to mend
// it. It reports whether the larger cost fell.
func (e *Evener) resplit(heavy, light int32) bool {
	h, l := e.open(heavy), e.open(light)
	e.union = append(append(e.union[:0], h.items...), l.items...)
	slices.SortFunc(e.union, func(a, b sized) int {
		return cmp.Or(cmp.Compare(b.cost, a.cost), cmp.Compare(a.index, b.index))
	})
	for k, bin := range [2]int32{heavy, light} {
		e.sides[k] = cappedBin{room: e.capacity, listed: true, items: e.sides[k].items[:0]}
		if len(e.fixed) > 0 {
			e.sides[k].cost, e.sides[k].room = e.fixed[bin].cost, e.capacity-e.fixed[bin].tokens
		}
	}
	a, b := &e.sides[0], &e.sides[1]
	for _, it := range e.union {
		if a.cost <= b.cost {
			a.insert(it)
		} else {
			b.insert(it)
		}
	}
	over, other := a, b
	if b.room < 0 {
		over, other = b, a
	}
	e.effort -= resplitEffort * len(e.union)
	if diff := h.cost - l.cost; over.room < 0 {
		best := swap{diff: over.cost - other.cost, miss: diff}
		best.search(over, other, 0, true)
		e.effort -= best.looked
		if best.miss >= diff {
			return false
		}
		best.apply(over, other)
	} else if abs(a.cost-b.cost) >= diff {
		return false
	}
	if len(e.fixed) == 0 {
		a, b = over, other // sides are alike
	}
	h.become(a)
	l.become(b)
	return true
}

// exchange makes the best exchange of two bins and reports whether there was one.
func (e *Evener) exchange(heavy, light int32, deep bool) bool {
	h, l := e.open(heavy), e.open(light)
	diff := h.cost - l.cost
	best := swap{diff: diff, miss: diff}
	best.search(h, l, diff/4, deep)
	e.effort -= best.looked
	if best.miss >= diff {
		return false
	}
	best.apply(h, l)
	return true
}

// swap is an exchange of items of a heavy bin for items of a light one.
type swap struct {
	out, in [2]int // positions of the items, -1 for none
	diff    int64  // between the costs of the bins
	looked  int    // items looked at
	miss    int64  // by how much the shift of cost misses half the difference, doubled
}

// search looks for the best exchange: of one item for none, one or two, and in
// a deep search, where bins hold few items, of two. It stops after the first kind
// of exchange that misses by at most enough.
func (s *swap) search(h, l *cappedBin, enough int64, deep bool) {
	long := 0
	for i, x := range h.items {
		long = s.forOne(x, [2]int{i, -1}, h, l, long)
	}
	for i := 0; i < len(h.items) && s.miss > enough; i++ {
		s.forTwo(h.items[i], [2]int{i, -1}, h, l)
	}
	deep = deep && len(h.items) <= deepItems
	for i := 0; deep && i < len(h.items) && s.miss > enough; i++ {
		long := 0
		for k := i + 1; k < len(h.items); k++ {
			x, y := h.items[i], h.items[k]
			both := sized{cost: x.cost + y.cost, tokens: x.tokens + y.tokens}
			long = s.forOne(both, [2]int{i, k}, h, l, long)
			s.forTwo(both, [2]int{i, k}, h, l)
		}
	}
}

// consider takes an exchange that shifts a cost if it is the best so far.
func (s *swap) consider(shift int64, out, in [2]int) {
	if miss := abs(2*shift - s.diff); miss < s.miss {
		s.out, s.in, s.miss = out, in, miss
	}
}

// forOne looks for no item or one in return for x. The first items of l are passed over, as they are too long
// for an x that is no longer than the last one; it returns how many are.
func (s *swap) forOne(x sized, out [2]int, h, l *cappedBin, long int) int {
	if x.tokens <= l.room && x.tokens+h.room >= 0 {
		s.consider(x.cost, out, [2]int{-1, -1})
	}
	items := l.items
	least, most := x.tokens-l.room, x.tokens+h.room
	for long < len(items) && items[long].tokens > most {
		long++
	}
	j := long
	for ; j < len(items) && items[j].tokens >= least; j++ {
		s.consider(x.cost-items[j].cost, out, [2]int{j, -1})
	}
	s.looked += min(j+1, len(items))
	return long
}

// forTwo looks for two items in return for x, the second one as short as the
// caps allow, or a little longer.
func (s *swap) forTwo(x sized, out [2]int, h, l *cappedBin) {
	if x.cost < (s.diff-s.miss)/2 {
		return // even for nothing it would shift too little
	}
	items := l.items
	short, long := x.tokens-l.room, x.tokens+h.room
	end := len(items) // just past the last item that is not too short
	j := 0
	for ; j < len(items); j++ {
		y := &items[j]
		least, most := short-y.tokens, long-y.tokens
		if most < 1 {
			continue
		}
		for end > j+1 && items[end-1].tokens < least {
			end--
		}
		if end <= j+1 {
			j++
			break
		}
		rest := x.cost - y.cost
		for k := end - 1; k > max(j, end-1-windowItems); k-- {
			z := &items[k]
			if z.tokens > most {
				break
			}
			s.consider(rest-z.cost, out, [2]int{j, k})
		}
	}
	s.looked += 2 * j
}

// apply makes an exchange.
func (s *swap) apply(h, l *cappedBin) {
	var moved [2]sized
	for k := 1; k >= 0; k-- { // the later position first
		if s.out[k] >= 0 {
			moved[k] = h.remove(s.out[k])
		}
	}
	for k := 1; k >= 0; k-- {
		if s.in[k] >= 0 {
			h.insert(l.remove(s.in[k]))
		}
	}
	for _, it := range moved {
		if it.tokens > 0 {
			l.insert(it)
		}
	}
}

func abs(n int64) int64 {
	return max(n, -n)
}
