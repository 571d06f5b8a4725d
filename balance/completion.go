package balance

import "math/bits"

const (
	triples   = 8  // first items tried in search of three that fit exactly
	pairWords = 64 // words of 64 lengths each looked at in search of one pair
	slacks    = 8  // tokens that a pair may leave free where nothing fits exactly
	workRate  = 16 // words looked at per item, all searches together
)

// completion packs bin by bin: a bin gets its first items, then the one, two or
// three that fill the rest exactly. Items of one length are alike but for their
// index, so it works on counts per length.
type completion struct {
	items   *byLength
	left    []run   // per length of an item: which items remain
	lengths bitset  // those that remain
	min     int32   // the shortest that remains
	max     int32   // the longest that remains
	remain  int     // items
	work    int     // words that searches may still look at
	bin     []int32 // the result
}

// run is the items of one length that remain: the first of them, from which a chain leads to the others.
type run struct{ first, count int32 }

// reset makes all items remain.
func (c *completion) reset(items *byLength, bin []int32, capacity int32) {
	c.items, c.bin = items, bin
	c.remain, c.work = items.items, workRate*items.items
	c.left = grow(c.left, int(capacity)+1)
	c.lengths.copy(&items.lengths)
	for n := c.lengths.prev(capacity); n > 0; n = c.lengths.prev(n - 1) {
		c.left[n] = run{items.first[n], items.count[n]}
	}
	c.min, c.max = c.lengths.next(0), c.lengths.prev(capacity)
}

// take puts the first remaining item of length n into bin b.
func (c *completion) take(n, b int32) {
	r := &c.left[n]
	c.bin[r.first] = b
	r.first = c.items.next[r.first]
	c.remain--
	if r.count--; r.count == 0 {
		c.drop(n)
	}
}

// begin takes items into bin b by their index, from next on, while the bin has room for more than two of the longest.
// It returns the index and the room that come after them. The loop is take's, where nearly all items of a step go.
func (c *completion) begin(lengths []int32, next int, room, b int32) (after int, left int32) {
	chain, bin, remain, two := c.items.next, c.bin, c.remain, 2*c.max
	for ; next < len(lengths) && remain > 0 && room > two; next++ {
		n := lengths[next]
		r := &c.left[n]
		if r.count == 0 {
			continue
		}
		bin[r.first] = b
		r.first = chain[r.first]
		remain--
		room -= n
		if r.count--; r.count == 0 {
			c.drop(n)
			two = 2 * c.max
		}
	}
	c.remain = remain
	return next, room
}

// drop takes a length out of those that remain.
func (c *completion) drop(n int32) {
	c.lengths.remove(n)
	if n == c.min {
		c.min = c.lengths.next(n)
	}
	if n == c.max {
		c.max = c.lengths.prev(n)
	}
}

// complete fills the room of bin b with remaining items and returns the room
// left. Long items go first: short ones fit anywhere later.
func (c *completion) complete(room, b int32) int32 {
	for c.remain > 0 && room >= c.min {
		if room > 3*c.max {
			room -= c.max
			c.take(c.max, b)
			continue
		}
		if c.exactly(room, b) {
			return 0
		}
		one := c.lengths.prev(min(room, c.max))
		for slack := int32(1); ; slack++ {
			if slack >= min(room-one, slacks) || c.work <= 0 {
				c.take(one, b)
				room -= one
				break
			}
			if a := c.pair(room - slack); a > 0 {
				c.take(a, b)
				c.take(room-slack-a, b)
				room = slack
				break
			}
		}
	}
	return room
}

// exactly places one, two or three items of sum tokens together, if it finds them.
func (c *completion) exactly(sum, b int32) bool {
	if sum <= c.max && c.lengths.has(sum) {
		c.take(sum, b)
		return true
	}
	if a := c.pair(sum); a > 0 {
		c.take(a, b)
		c.take(sum-a, b)
		return true
	}
	x := min(sum-2*c.min, c.max)
	for range triples {
		if c.work <= 0 {
			return false
		}
		if x = c.lengths.prev(x); 3*x < sum { // none, or it is not the longest of three
			return false
		}
		if a := c.pairWithout(x, sum-x); a > 0 {
			c.take(x, b)
			c.take(a, b)
			c.take(sum-x-a, b)
			return true
		}
		x--
	}
	return false
}

// pairWithout is pair with one item of length x excluded.
func (c *completion) pairWithout(x, sum int32) int32 {
	r := &c.left[x]
	r.count--
	if r.count == 0 {
		c.lengths.remove(x)
	}
	a := c.pair(sum)
	if r.count == 0 {
		c.lengths.add(x)
	}
	r.count++
	return a
}

// pair returns the longest length a such that an item of it and another one of
// sum-a <= a remain, or -1 if none is found. It compares 64 lengths at a time
// with their counterparts.
func (c *completion) pair(sum int32) int32 {
	if sum < 2*c.min || sum > 2*c.max || c.work <= 0 {
		return -1
	}
	c.work--
	words := c.lengths.levels[0]
	lo := (sum + 1) / 2
	hi := min(sum-c.min, c.max)
	last := max(int(lo>>6), int(hi>>6)-pairWords+1)
	for at := int(hi >> 6); at >= last && c.work > 0; at-- {
		c.work--
		if words[at] == 0 {
			continue
		}
		from := int32(at << 6)
		both := words[at] & bits.Reverse64(c.lengths.window(sum-from-63))
		for both != 0 {
			bit := 63 - bits.LeadingZeros64(both)
			a := from + int32(bit)
			if a < lo {
				return -1
			}
			if 2*a != sum || c.left[a].count > 1 {
				return a
			}
			both &^= 1 << bit
		}
	}
	return -1
}
