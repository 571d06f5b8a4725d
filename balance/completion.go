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
// index, and the first of them belong into the first bins. So that a search for the best
// prefix goes through the items as they come, with no more than a sum for each, a bin is filled
// with the last items of a length, and write orders the bins of a length in the end.
type completion struct {
	items   *byLength
	lengths bitset  // those that remain
	min     int32   // the shortest that remains
	max     int32   // the longest that remains, negative if none does
	next    int32   // items before it were taken
	last    []int32 // per length: the last item that was not taken from the end; it remains from next on
	left    []int32 // per item: its length, negative for the last one that remains of it, 0 for one taken from the end
	begins  []int32 // per bin, the first of the items that were taken as they come
	work    int     // words that searches may still look at
	bin     []int32 // the result
	taken   []taken // from the end, in order
}

// taken is that an item of a length was taken for a bin.
type taken struct{ length, bin int32 }

// reset makes all items remain.
func (c *completion) reset(items *byLength, bin []int32, capacity int32) {
	c.items, c.bin = items, bin
	c.next, c.work = int32(items.end-items.items), workRate*items.items
	c.begins, c.taken = c.begins[:0], c.taken[:0]
	c.last = grow(c.last, int(capacity)+1)
	c.left = append(c.left[:0], items.of[:items.end]...)
	c.lengths.copy(&items.lengths)
	for n := c.lengths.prev(capacity); n > 0; n = c.lengths.prev(n - 1) {
		c.last[n] = items.last[n]
		c.left[items.last[n]] = -n
	}
	c.min, c.max = c.lengths.next(0), c.lengths.prev(capacity)
}

// take puts a remaining item of length n into bin b: the last one, until write orders the bins.
func (c *completion) take(n, b int32) {
	i := c.last[n]
	c.bin[i], c.left[i] = b, 0
	c.taken = append(c.taken, taken{n, b})
	if i = c.items.prev[i]; i < c.next {
		c.drop(n)
	} else {
		c.left[i] = -n
	}
	c.last[n] = i
}

// begin takes items into a bin as they come, while it has room for more than two of the longest, and returns
// the room left. Nearly all items of a step go here.
func (c *completion) begin(room int32) int32 {
	i, left, two := int(c.next), c.left, 2*c.max
	for ; i < len(left) && room > two; i++ {
		n := left[i]
		if n < 0 {
			n = -n
			c.drop(n)
			two = 2 * c.max
		}
		room -= n
	}
	c.next = int32(i)
	return room
}

// over measures the items that remain.
func (c *completion) over() (o outcome) {
	for _, n := range c.left[c.next:] {
		if n != 0 {
			o.left += int64(max(n, -n))
			o.items++
		}
	}
	return o
}

// write gives the items of each length the bins that took one, in order. It goes through the bins from the last to
// the first, and so through the items of each length.
func (c *completion) write() {
	of, prev, bin, to := c.items.of, c.items.prev, c.bin, c.last
	all := &c.items.lengths
	for n := all.prev(all.size - 1); n > 0; n = all.prev(n - 1) {
		to[n] = c.items.last[n]
	}
	taken, end := len(c.taken), len(c.left)
	for b := int32(len(c.begins)); b >= 0; b-- { // above the bins, what remains
		at, begin := b, int(c.next)
		if int(b) == len(c.begins) {
			at = Unplaced
		} else {
			begin = int(c.begins[b])
		}
		for ; taken > 0 && c.taken[taken-1].bin == b; taken-- {
			n := c.taken[taken-1].length
			i := to[n]
			bin[i], to[n] = at, prev[i]
		}
		for end--; end >= begin; end-- {
			if c.left[end] != 0 {
				n := of[end]
				i := to[n]
				bin[i], to[n] = at, prev[i]
			}
		}
		end = begin
	}
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
	for c.max > 0 && room >= c.min {
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
	last := c.last[x]
	c.last[x] = c.items.prev[last]
	only := c.last[x] < c.next
	if only {
		c.lengths.remove(x)
	}
	a := c.pair(sum)
	if only {
		c.lengths.add(x)
	}
	c.last[x] = last
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
			if 2*a != sum || c.items.prev[c.last[a]] >= c.next {
				return a
			}
			both &^= 1 << bit
		}
	}
	return -1
}
