package balance

import "math/bits"

// spreader packs items anew: longest processing time first in two units at once.
//
// A bin may come to its end in two ways: full of tokens, or at the mean cost with
// tokens to spare. Which one it is shows when it is thought full of what is left,
// at the mean cost of its tokens. While that costs no more than the mean, a bin goes
// before those where it does, the cheapest such bin first; the others follow by the
// cost that they have. So bins with long items wait for short ones. The very last
// items go to the bin that is least full, fullness being the larger of
// tokens/capacity and cost/mean: they even out what is left.
//
// Costs are scaled to as many bits as keys have.
type spreader struct {
	shift int   // of costs: to the left, or to the right if negative
	cost  int64 // of what is left, scaled
	left  int64 // tokens of what is left
	most  int64 // tokens that were left when bins were ordered
	last  int64 // tokens of the last items
	mean  int64 // cost of a bin, scaled, and a little more
	price ratio // cost of a token of what is left
	even  ratio // cost of a token of the mean bin, were it full
}

const (
	lastPart  = 64 // one in so many tokens is of the last items
	meanSlack = 8  // the mean plus one part in 2^8 of it is how dear a full bin may be
)

// spread packs the placed items anew, into trial and the bins. It reports whether
// all of them fitted.
func (e *Evener) spread(bin []int32, bins int) bool {
	s := e.spreader(bins)
	e.trial = append(e.trial[:0], bin...)
	e.late = e.late[:0]
	e.empty(bins)
	block := e.block()
	for k := range e.order {
		if k%block == 0 {
			e.weigh(&s)
		}
		if it := &e.order[k]; !e.place(it, &s) {
			e.late = append(e.late, it.index)
		}
	}
	e.weigh(&s)
	late := e.late[:0]
	for _, i := range e.late {
		if !e.place(&e.items[i], &s) {
			late = append(late, i)
		}
	}
	e.late = late
	return len(late) == 0 || e.gather()
}

func (e *Evener) spreader(bins int) (s spreader) {
	total := int64(0)
	for i := range e.order {
		total += e.order[i].cost
		s.left += int64(e.order[i].tokens)
	}
	most := 62 - bits.Len(uint(bins-1)) // bits of a load, half the largest key
	s.shift = most - bits.Len64(uint64(total))
	s.cost = s.scaled(total)
	s.last = s.left / lastPart
	s.mean = s.cost / int64(bins)
	s.mean += s.mean >> meanSlack
	s.even = ratioOf(max(s.cost, 1<<(most-1))/int64(bins), int64(e.capacity))
	return s
}

// block returns after how many items bins are weighed anew.
func (e *Evener) block() int {
	if e.many() {
		return max(len(e.bins)/8, len(e.order)/128)
	}
	return max(len(e.bins)/32, len(e.order)/1024, 1)
}

// weigh opens all bins and orders them anew.
func (e *Evener) weigh(s *spreader) {
	s.most, s.price = s.left, ratioOf(s.cost, s.left)
	e.tree.build(len(e.bins), func(b int) uint64 { return e.level(&e.bins[b], s) })
}

// place puts an item into the first bin that has room, and closes those before.
func (e *Evener) place(it *sized, s *spreader) bool {
	s.left -= int64(it.tokens)
	s.cost -= s.scaled(it.cost)
	for !e.tree.done() {
		b := e.tree.lightest()
		c := &e.bins[b]
		if c.room >= it.tokens {
			c.cost, c.room = c.cost+it.cost, c.room-it.tokens
			e.trial[it.index] = int32(b)
			e.tree.set(e.level(c, s))
			return true
		}
		e.tree.close()
	}
	return false
}

// level says how full a bin is.
func (e *Evener) level(c *crate, s *spreader) uint64 {
	cost := uint64(s.scaled(c.cost))
	if s.most <= s.last {
		return max(cost, s.even.of(int64(e.capacity-c.room)))
	}
	if full := cost + s.price.of(min(int64(c.room), s.most)); full <= uint64(s.mean) {
		return full
	}
	return uint64(s.mean) + cost
}

func (s *spreader) scaled(cost int64) int64 {
	if s.shift < 0 {
		return cost >> -s.shift
	}
	return cost << s.shift
}

// ratio is a fraction to multiply by.
type ratio struct {
	factor uint64
	shift  uint
}

func ratioOf(a, b int64) ratio {
	shift := uint(bits.LeadingZeros64(uint64(a) | 1))
	return ratio{uint64(a) << shift / uint64(max(b, 1)), shift}
}

// of returns a times the ratio, rounded down; it must fit.
func (r ratio) of(a int64) uint64 {
	hi, lo := bits.Mul64(uint64(a), r.factor)
	return hi<<(64-r.shift) | lo>>r.shift
}
