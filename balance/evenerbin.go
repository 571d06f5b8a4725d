package balance

// cappedBin is a bin of limited room and its items. Most bins never take part in an
// exchange, so items are listed on first use.
type cappedBin struct {
	cost   int64
	room   int32   // tokens
	first  int32   // first item, the others follow by Evener.next; none if empty
	listed bool    // items are listed, and first is not up to date
	items  []sized // by decreasing tokens, equal ones by index
}

// empty makes all bins empty.
func (e *Evener) empty(bins int) {
	if more := bins - cap(e.bins); more > 0 {
		e.bins = append(e.bins[:cap(e.bins)], make([]cappedBin, more)...)
	}
	e.bins = e.bins[:bins]
	for b := range e.bins {
		e.bins[b] = cappedBin{room: e.capacity, first: none, items: e.bins[b].items[:0]}
	}
	for b, f := range e.fixed {
		e.bins[b].cost, e.bins[b].room = f.cost, e.capacity-f.tokens
	}
}

// link chains the items of each bin in their order.
func (e *Evener) link(bin []int32) {
	e.next = grow(e.next, len(e.items))
	for b := range e.bins {
		e.bins[b].first = none
	}
	for k := len(e.order) - 1; k >= 0; k-- {
		i := e.order[k].index
		if b := bin[i]; b != Unplaced {
			e.next[i], e.bins[b].first = e.bins[b].first, i
		}
	}
}

// open returns a bin with its items listed.
func (e *Evener) open(b int32) *cappedBin {
	c := &e.bins[b]
	if !c.listed {
		for i := c.first; i != none; i = e.next[i] {
			c.items = append(c.items, e.items[i])
		}
		c.listed = true
	}
	return c
}

// unload writes the bins of listed items to bin; other items have not moved.
func (e *Evener) unload(bin []int32) {
	for b := range e.bins {
		for _, it := range e.bins[b].items {
			bin[it.index] = int32(b)
		}
	}
}

// become has a bin hold what another one does, in memory of its own.
func (c *cappedBin) become(from *cappedBin) {
	c.cost, c.room, c.items = from.cost, from.room, append(c.items[:0], from.items...)
}

// remove removes the item at a position.
func (c *cappedBin) remove(at int) sized {
	it := c.items[at]
	c.items = append(c.items[:at], c.items[at+1:]...)
	c.cost -= it.cost
	c.room += it.tokens
	return it
}

// insert adds an item in order.
func (c *cappedBin) insert(it sized) {
	c.cost += it.cost
	c.room -= it.tokens
	c.items = append(c.items, it)
	at := len(c.items) - 1
	for ; at > 0 && it.before(c.items[at-1]); at-- {
		c.items[at] = c.items[at-1]
	}
	c.items[at] = it
}

func (a sized) before(b sized) bool {
	return a.tokens > b.tokens || a.tokens == b.tokens && a.index < b.index
}
