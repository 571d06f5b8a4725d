package balance

import "math/bits"

// level is how full a bin is.
type level struct {
	full int64 // the larger of cost/mean and tokens/capacity, in units of 2^-levelBits; or the cost
	bin  int32
}

const (
	levelBits  = 20
	spreadOver = 16 // bins that an item is tried in, the least full first
)

func (a level) before(b level) bool {
	return a.full < b.full || a.full == b.full && a.bin < b.bin
}

// levelHeap has the least full bin first.
type levelHeap []level

func (h levelHeap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

func (h levelHeap) up(i int) {
	for i > 0 && h[i].before(h[(i-1)/2]) {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
		i = (i - 1) / 2
	}
}

// spread packs the placed items anew, into trial: longest processing time first
// in two units at once. It reports whether all of them fitted.
func (e *Evener) spread(bin []int32, bins int) bool {
	total := int64(0)
	for b := range e.bins {
		total += e.bins[b].cost
	}
	e.trial = grow(e.trial, len(bin))
	e.entries = grow(e.entries, len(bin))
	for i, it := range e.items {
		e.trial[i] = Unplaced
		if bin[i] == Unplaced {
			e.entries[i] = costed{-1, int32(i)}
			continue
		}
		e.entries[i] = costed{e.fullness(it.cost, int64(it.tokens), total), int32(i)}
	}
	e.entries = e.sorter.sort(e.entries)
	e.levels = levelHeap(grow([]level(e.levels), bins))
	for b := range e.levels {
		e.levels[b] = level{0, int32(b)}
		e.bins[b] = crate{room: e.capacity, items: e.bins[b].items[:0]}
	}
	e.late = e.late[:0]
	for _, entry := range e.entries {
		if entry.cost < 0 {
			break
		}
		if !e.spreadItem(entry.item, total) {
			e.late = append(e.late, entry.item)
		}
	}
	return e.spreadLate()
}

// spreadLate puts the items that the least full bins had no room for into the
// bins of the least cost that have. It reports whether all of them fitted.
func (e *Evener) spreadLate() bool {
	h := e.levels
	for b := range h {
		h[b] = level{e.bins[b].cost, int32(b)}
	}
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
	for _, i := range e.late {
		it := e.items[i]
		for len(h) > 0 && e.bins[h[0].bin].room < it.tokens {
			h[0] = h[len(h)-1] // late items are shorter and shorter, but for their cost
			h = h[:len(h)-1]
			h.down(0)
		}
		if len(h) == 0 {
			return false
		}
		c := &e.bins[h[0].bin]
		c.cost, c.room = c.cost+it.cost, c.room-it.tokens
		e.trial[i] = h[0].bin
		h[0].full = c.cost
		h.down(0)
	}
	return true
}

// fullness returns the level of a bin with the given content.
func (e *Evener) fullness(cost, tokens, total int64) int64 {
	full := tokens << levelBits / int64(e.capacity)
	if total > 0 {
		hi, lo := bits.Mul64(uint64(cost), uint64(len(e.bins))<<levelBits)
		share, _ := bits.Div64(hi, lo, uint64(total)) // cost <= total: the quotient fits
		full = max(full, int64(share))
	}
	return full
}

// spreadItem puts an item into the least full bin that has room for it.
func (e *Evener) spreadItem(i int32, total int64) bool {
	it := e.items[i]
	h := e.levels
	e.aside = e.aside[:0]
	for len(e.aside) < spreadOver && len(h) > 0 && e.bins[h[0].bin].room < it.tokens {
		e.aside = append(e.aside, h[0])
		h[0] = h[len(h)-1]
		h = h[:len(h)-1]
		h.down(0)
	}
	placed := len(h) > 0 && len(e.aside) < spreadOver
	if placed {
		b := h[0].bin
		c := &e.bins[b]
		c.cost, c.room = c.cost+it.cost, c.room-it.tokens
		h[0].full = e.fullness(c.cost, int64(e.capacity-c.room), total)
		h.down(0)
		e.trial[i] = b
	}
	for _, l := range e.aside {
		h = append(h, l)
		h.up(len(h) - 1)
	}
	return placed
}
