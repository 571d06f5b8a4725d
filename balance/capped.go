package balance

import (
	"fmt"
	"math"
)

// Evener makes the costs of bins even while it keeps their token cap. It holds
// the scratch memory of one call, reused by the next. The zero value is ready.
// An Evener is not safe for concurrent use.
type Evener struct {
	items    []sized // by index
	capacity int32   // tokens
	bins     []crate
	sorter   sorter
	entries  []costed // scratch of sorting
	levels   levelHeap
	trial    []int32 // the bins of another start
	aside    []level // bins that a long item did not fit in
	late     []int32 // items that the least full bins had no room for
	lights   []int32 // bins to relieve heavy ones
	union    []sized // the items of two bins
	sides    [2]crate
}

// sized is an item's size in both units.
type sized struct {
	cost   int64
	tokens int32
	index  int32
}

// crate is a bin's content.
type crate struct {
	cost  int64
	room  int32   // tokens
	items []sized // by decreasing tokens, equal ones by index
}

// twoStarts is the number of items up to which both starts are refined; with
// more, the second one is where the first failed.
const twoStarts = 1 << 14

// nearly returns a cost so close to the bound that the rest is not worth work.
func nearly(bound int64) int64 { return bound + bound/16384 }

// Even moves items between bins so that the largest cost of a bin gets small
// while no bin holds more than capacity tokens. tokens (1 to capacity) and costs
// (0 and more, in any unit, less than 2^62 together) say the size of each item.
// bin has the bin of each, 0 to bins-1, and is changed in place; an item that is
// [Unplaced] stays so, all others stay placed. The largest cost never grows; if
// nothing lowers it, bin is left as it was.
//
// There are two starts, bin itself and a new packing of its items, each to the
// bin that is least full, fullness being the larger of tokens/capacity and
// cost/mean. The better one counts after heavy and light bins have been paired
// and have exchanged items, round after round: one for none, one for one, or one
// for two, the exchange that brings the pair's costs closest. Two short items
// cost less than one long one of their tokens where cost grows faster than
// length, so full bins can be made even too. At the end the heaviest bins, one
// by one, exchange two items as well, or share all their items anew with a light
// one. With many items, the second start is used only if the first one fails.
//
// Even fails, with bin unchanged, if an item or bin is out of range or a bin
// holds more than its capacity. Everything is integer arithmetic with ties by
// index. Nothing is allocated once the scratch has grown.
func (e *Evener) Even(tokens []int32, costs []int64, bin []int32, capacity int32, bins int) error {
	if err := e.reset(tokens, costs, bin, capacity, bins); err != nil {
		return err
	}
	if err := e.load(bin, bins); err != nil || bins < 2 {
		return err
	}
	bound := e.bound()
	start := e.heaviest()
	if start <= nearly(bound) {
		return nil
	}
	best, spread := start, e.spread(bin, bins)
	if spread {
		if err := e.load(e.trial, bins); err != nil {
			return err
		}
		if best = min(start, e.refine(bound)); best < start {
			e.unload(e.trial)
		}
	}
	if !spread || best > nearly(bound) && len(e.items) <= twoStarts {
		if err := e.load(bin, bins); err != nil {
			return err
		}
		if e.refine(bound) < best {
			e.unload(bin)
			return nil
		}
	}
	if best < start {
		copy(bin, e.trial)
	}
	return nil
}

// Capped assigns items to bins of capacity tokens so that the largest cost of a
// bin is small: [Packer.Pack] finds a packing and [Evener.Even] evens it out.
// What does not fit gets [Unplaced]. bin has an entry per item and belongs to
// the Packer.
func (e *Evener) Capped(p *Packer, tokens []int32, costs []int64, capacity int32, bins int) (bin []int32, err error) {
	if bins < 1 {
		return nil, fmt.Errorf("%d bins; at least 1 is needed", bins)
	}
	if bin, _, err = p.Pack(tokens, 0, capacity, bins); err != nil {
		return nil, err
	}
	return bin, e.Even(tokens, costs, bin, capacity, bins)
}

func (e *Evener) reset(tokens []int32, costs []int64, bin []int32, capacity int32, bins int) error {
	if err := check(tokens, 0, capacity); err != nil {
		return err
	}
	if len(costs) != len(tokens) || len(bin) != len(tokens) {
		return fmt.Errorf("%d costs and %d bins of items for the tokens of %d; each item needs all three", len(costs), len(bin), len(tokens))
	}
	if bins < 0 || bins > math.MaxInt32 {
		return fmt.Errorf("%d bins; 0 to %d are possible", bins, math.MaxInt32)
	}
	e.items, e.capacity = grow(e.items, len(tokens)), capacity
	left := int64(1)<<62 - 1
	for i, c := range costs {
		if c < 0 || c > left {
			return fmt.Errorf("item %d has cost %d; costs are 0 and more, and less than 2^62 together", i, c)
		}
		left -= c
		e.items[i] = sized{c, tokens[i], int32(i)}
		if bin[i] < Unplaced || int(bin[i]) >= bins {
			return fmt.Errorf("item %d is in bin %d; bins are 0 to %d, or %d for none", i, bin[i], bins-1, Unplaced)
		}
	}
	return nil
}

// load fills the bins with their items.
func (e *Evener) load(bin []int32, bins int) error {
	if more := bins - cap(e.bins); more > 0 {
		e.bins = append(e.bins[:cap(e.bins)], make([]crate, more)...)
	}
	e.bins = e.bins[:bins]
	for b := range e.bins {
		e.bins[b] = crate{room: e.capacity, items: e.bins[b].items[:0]}
	}
	e.entries = grow(e.entries, len(e.items))
	for i, it := range e.items {
		e.entries[i] = costed{int64(it.tokens), int32(i)}
	}
	e.entries = e.sorter.sort(e.entries)
	for _, entry := range e.entries {
		b := bin[entry.item]
		if b == Unplaced {
			continue
		}
		c, it := &e.bins[b], e.items[entry.item]
		if c.room -= it.tokens; c.room < 0 {
			return fmt.Errorf("bin %d holds more than its capacity of %d tokens", b, e.capacity)
		}
		c.cost += it.cost
		c.items = append(c.items, it)
	}
	return nil
}

func (e *Evener) unload(bin []int32) {
	for b := range e.bins {
		for _, it := range e.bins[b].items {
			bin[it.index] = int32(b)
		}
	}
}

func (e *Evener) heaviest() (cost int64) {
	for b := range e.bins {
		cost = max(cost, e.bins[b].cost)
	}
	return cost
}

// bound returns a cost that the heaviest bin cannot go below: the mean, or the
// largest item.
func (e *Evener) bound() int64 {
	total, largest := int64(0), int64(0)
	for b := range e.bins {
		total += e.bins[b].cost
		for _, it := range e.bins[b].items {
			largest = max(largest, it.cost)
		}
	}
	return max(largest, (total+int64(len(e.bins))-1)/int64(len(e.bins)))
}
