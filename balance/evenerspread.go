package balance

import (
	"math"
	"math/bits"
)

// spreader packs items from scratch: longest processing time first in two units at once.
//
// A bin ends in one of two ways: full of tokens, or at the mean cost with room to
// spare. Its estimated cost when full, with its room at the mean cost of the
// remaining tokens, tells which. Bins whose estimate is at most the mean come first,
// the cheapest estimate first; the others follow by their present cost. So bins with
// long items wait for short ones. The very last
// items go to the bin that is least full, fullness being the larger of
// tokens/capacity and cost/mean: they even out the remaining differences.
//
// Where bins hold pieces of giants, most of them hold half of the mean cost and more, and leave room that
// their cost closes. So the room that stays empty counts [emptyPart] times there when full bins are estimated, and
// a large item goes to another bin if the first one would cost more than the limit with it.
//
// Costs are scaled to as many bits as keys have.
type spreader struct {
	up    uint  // by how many bits costs are shifted to the left,
	down  uint  // or to the right
	cost  int64 // of the remaining items, scaled
	left  int64 // tokens of the remaining items
	most  int64 // tokens that remained when bins were ordered
	last  int64 // tokens of the last items
	mean  int64 // cost of a bin, scaled, and a little more
	price ratio // cost per remaining token
	even  ratio // cost per token of a full bin of mean cost
	large int64 // cost of an item, not scaled, that the limit is for
	limit int64 // cost of a bin, not scaled
}

const (
	lastPart  = 64 // the last 1/64 of the tokens belong to the last items
	meanSlack = 8  // a full bin may cost the mean plus 1/2^8 of it
	emptyPart = 4
	largePart = 3 // a large item costs 1/2^3 of the mean and more
	overLimit = 7 // the limit is 1/2^7 above the mean
)

// binState is what a bin holds while items are spread: less memory than a bin, as any may be next.
type binState struct {
	cost int64
	room int32 // tokens
}

// spread packs the placed items from scratch, into trial and the bins. It reports
// whether all of them fit.
func (e *Evener) spread(bin []int32, bins int) bool {
	s := e.spreader(bins)
	e.trial = append(e.trial[:0], bin...)
	e.deferred = e.deferred[:0]
	e.empty(bins)
	e.states = grow(e.states, bins)
	for b := range e.bins {
		e.states[b] = binState{e.bins[b].cost, e.bins[b].room}
	}
	block := e.block()
	for first := 0; first < len(e.order); first += block {
		e.weigh(&s)
		for k := range e.order[first:min(first+block, len(e.order))] {
			if it := &e.order[first+k]; !e.place(it, &s) {
				e.deferred = append(e.deferred, it.index)
			}
		}
	}
	e.weigh(&s)
	deferred := e.deferred[:0]
	for _, i := range e.deferred {
		if !e.place(&e.items[i], &s) {
			deferred = append(deferred, i)
		}
	}
	e.deferred = deferred
	for b, p := range e.states {
		e.bins[b].cost, e.bins[b].room = p.cost, p.room
	}
	return len(deferred) == 0 || e.gather()
}

func (e *Evener) spreader(bins int) (s spreader) {
	cost := int64(0)
	for i := range e.order {
		cost += e.order[i].cost
		s.left += int64(e.order[i].tokens)
	}
	total := cost
	for i := range e.fixed {
		total += e.fixed[i].cost
	}
	s.large = math.MaxInt64
	if mean := total / int64(bins); len(e.fixed) > 0 {
		s.large, s.limit = mean>>largePart, mean+mean>>overLimit
	}
	most := 62 - bits.Len(uint(bins-1)) // bits of a load, half the largest key
	s.up, s.down = uint(max(most-bits.Len64(uint64(total)), 0)), uint(max(bits.Len64(uint64(total))-most, 0))
	s.cost, total = s.scaled(cost), s.scaled(total)
	s.last = s.left / lastPart
	s.mean = total / int64(bins)
	s.mean += s.mean >> meanSlack
	s.even = ratioOf(max(total, 1<<(most-1))/int64(bins), int64(e.capacity))
	return s
}

// block returns the number of items between two calls of weigh.
func (e *Evener) block() int {
	if e.many() {
		return max(len(e.bins)/8, len(e.order)/128, 1)
	}
	return max(len(e.bins)/32, len(e.order)/1024, 1)
}

// weigh opens all bins and sorts them again.
func (e *Evener) weigh(s *spreader) {
	room := s.left
	if len(e.fixed) > 0 {
		for b := range e.states {
			room += emptyPart * int64(e.states[b].room)
		}
		room -= emptyPart * s.left
	}
	s.most, s.price = s.left, ratioOf(s.cost, room)
	e.tree.build(len(e.states), func(b int) uint64 { return e.level(&e.states[b], s) })
}

// place puts an item into the first bin that has room, and closes those before.
func (e *Evener) place(it *sized, s *spreader) bool {
	s.left -= int64(it.tokens)
	s.cost -= s.scaled(it.cost)
	for !e.tree.done() {
		b := e.tree.lightest()
		p := &e.states[b]
		switch {
		case p.room < it.tokens:
			e.tree.close()
			continue
		case it.cost >= s.large && p.cost+it.cost > s.limit:
			e.put(it, e.within(it, s))
			e.weigh(s)
		default:
			e.put(it, b)
			e.tree.set(e.level(p, s))
		}
		return true
	}
	return false
}

// put puts an item into a bin.
func (e *Evener) put(it *sized, b int) {
	p := &e.states[b]
	p.cost, p.room = p.cost+it.cost, p.room-it.tokens
	e.trial[it.index] = int32(b)
}

// within returns the first bin that has room for an item and costs no more than the limit with it, or
// else the one that costs least. There must be one with room.
func (e *Evener) within(it *sized, s *spreader) int {
	first, least := -1, -1
	level := uint64(math.MaxUint64)
	for b := range e.states {
		p := &e.states[b]
		if p.room < it.tokens {
			continue
		}
		if least < 0 || p.cost < e.states[least].cost {
			least = b
		}
		if now := e.level(p, s); p.cost+it.cost <= s.limit && now < level {
			first, level = b, now
		}
	}
	if first < 0 {
		return least
	}
	return first
}

// level returns how full a bin is.
func (e *Evener) level(p *binState, s *spreader) uint64 {
	cost := uint64(s.scaled(p.cost))
	if s.most <= s.last {
		return max(cost, s.even.of(int64(e.capacity-p.room)))
	}
	if full := cost + s.price.of(min(int64(p.room), s.most)); full <= uint64(s.mean) {
		return full
	}
	return uint64(s.mean) + cost
}

func (s *spreader) scaled(cost int64) int64 { return cost << (s.up & 63) >> (s.down & 63) }

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
	return hi<<(-r.shift&63) | lo>>(r.shift&63) // hi is 0 if the shift is
}
