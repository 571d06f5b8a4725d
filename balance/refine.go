package balance

// contents are the items of each bin, by decreasing cost, with a little room to
// take in more than they began with.
type contents struct {
	entries []costed // all bins' items and room
	start   []int32  // per bin and one more: where its part of entries begins
	size    []int32  // per bin, items
	load    []int64  // per bin
	order   []costed // scratch: bins by decreasing load
	equal   bool     // counts differ by at most one, and have to
	swaps   bool     // no count may change
	effort  int      // entries that may still be looked at
}

// room is the number of items a bin can gain. A move that finds none left is not
// made; swaps need no room.
const room = 4

// reset fills the bins with items, given by decreasing cost: items[i] into bin at[i].
func (c *contents) reset(items []costed, at []int32, bins int) {
	c.size = grow(c.size, bins)
	c.load = grow(c.load, bins)
	c.start = grow(c.start, bins+1)
	clear(c.size)
	clear(c.load)
	for _, bin := range at {
		c.size[bin]++
	}
	sum := int32(0)
	for bin, size := range c.size {
		c.start[bin] = sum
		sum += size + room
	}
	c.start[bins] = sum
	c.entries = grow(c.entries, int(sum))
	for i, it := range items {
		bin := at[i]
		next := &c.start[bin] // while they are filled, where the next one goes
		c.entries[*next] = it
		*next++
		c.load[bin] += it.cost
	}
	for bin, size := range c.size {
		c.start[bin] -= size
	}
}

func (c *contents) items(bin int32) []costed {
	return c.entries[c.start[bin] : c.start[bin]+c.size[bin] : c.start[bin+1]]
}

// remove takes entry i out of a bin.
func (c *contents) remove(bin int32, i int) costed {
	items := c.items(bin)
	it := items[i]
	copy(items[i:], items[i+1:])
	c.size[bin]--
	c.load[bin] -= it.cost
	return it
}

// insert adds an item to a bin that has room, after those of at least its cost.
func (c *contents) insert(bin int32, it costed) {
	c.size[bin]++
	items := c.items(bin)
	i := len(items) - 1
	for ; i > 0 && items[i-1].cost < it.cost; i-- {
		items[i] = items[i-1]
	}
	items[i] = it
	c.load[bin] += it.cost
}

// Effort of refinement, in entries looked at: within a planning step's time for many
// entries, and generous for few.
const (
	effortPerItem = 12
	effortLeast   = 1 << 20
)

// partners is how many light bins a heavy one tries before it is given up for a
// round. The heaviest one tries all: it may be a giant among bins that have no
// smaller items to give, with the small ones in bins nearly as heavy.
const partners = 8

// refine lowers the largest load in rounds: the bins that are too heavy, heaviest
// first, are each paired with the lightest bin not paired yet, and make the one
// move or swap that brings the two loads closest together. Bins are too heavy
// in the upper half between the bound
// and the largest load, so a round is about as large as the gap it closes. It ends
// at the target, when the heaviest bin finds nothing to exchange, or when the
// effort is spent. With equal, counts stay equal.
func (c *contents) refine(s *sorter, bound, target int64, equal bool) {
	c.equal = equal
	c.effort = effortLeast + effortPerItem*len(c.entries)
	c.order = grow(c.order, len(c.load))
	for c.effort > 0 {
		for bin, load := range c.load {
			c.order[bin] = costed{load, int32(bin)}
		}
		c.order = s.sort(c.order)
		c.effort -= len(c.order)
		top := c.order[0].cost
		if top <= target || !c.round(bound+(top-bound)/2) {
			return
		}
	}
}

// round has the bins heavier than limit exchange items, and reports whether the heaviest one was relieved.
func (c *contents) round(limit int64) bool { return relieve(c.order, limit, c.level) }

// relieve pairs those of order, by falling cost, that cost more than limit, each with the last ones that are not
// paired yet, until exchange reports that it made one: the first with any, others with few. It reports whether
// the first one exchanged something.
func relieve(order []costed, limit int64, exchange func(heavy, light int32) bool) bool {
	light := len(order) - 1
	for heavy := 0; heavy < light && order[heavy].cost > limit; heavy++ {
		done := false
		for try := 0; (try < partners || heavy == 0) && heavy < light && !done; try++ {
			done = exchange(order[heavy].item, order[light].item)
			light--
		}
		if heavy == 0 && !done {
			return false
		}
	}
	return true
}

// level makes the move or swap between two bins that brings their loads closest
// together, and reports whether it found one.
func (c *contents) level(heavy, light int32) bool {
	i, j := c.bestExchange(heavy, light)
	if i < 0 {
		return false
	}
	down := c.remove(heavy, i)
	if j < int(c.size[light]) {
		up := c.remove(light, j)
		c.insert(heavy, up)
	}
	c.insert(light, down)
	return true
}

// bestExchange finds entries i of the heavy and j of the light bin whose costs
// difference is closest to half that of the loads; j past the last item is
// a move. The first i and j are -1 if none is closer than exchanging nothing. It is
// one walk over both, since with i the difference falls and with j it grows.
func (c *contents) bestExchange(heavy, light int32) (besti, bestj int) {
	from, to := c.items(heavy), c.items(light)
	gap := c.load[heavy] - c.load[light]
	c.effort -= len(from) + len(to)
	n := len(to)
	if !c.swaps && len(to) < cap(to) && (!c.equal || len(from) > len(to)) {
		n++ // one past the last item stands for a move
	}
	besti, bestj = -1, -1
	best := gap // of |gap - 2 shift|
	for i, j := 0, 0; i < len(from) && j < n; {
		shift := from[i].cost
		if j < len(to) {
			shift -= to[j].cost
		}
		rest := gap - 2*shift
		if abs := max(rest, -rest); abs < best {
			best, besti, bestj = abs, i, j
		}
		if rest < 0 {
			i++
		} else {
			j++
		}
	}
	return besti, bestj
}
