package balance

import (
	"fmt"
	"slices"
)

// Unplaced is the bin of an item that fitted in no bin.
const Unplaced int32 = -1

// MaxCapacity bounds the capacity of a bin in tokens: scratch memory grows with
// it (about 8 bytes a token), and 16 M tokens are past the longest context trained on.
const MaxCapacity int32 = 1 << 24

// ItemError reports an item that no bin of the capacity can hold.
type ItemError struct {
	Index    int   // of the item in lengths
	Length   int32 // tokens
	Capacity int32 // tokens
}

func (e *ItemError) Error() string {
	return fmt.Sprintf("item %d has length %d; a length from 1 to the capacity %d is needed: split or drop the sample first",
		e.Index, e.Length, e.Capacity)
}

// Packer packs items into bins of equal capacity by best fit decreasing. It
// holds the scratch memory of one call, reused by the next. The zero value is
// ready. A Packer is not safe for concurrent use.
type Packer struct {
	open   openBins
	bin    []int32 // the result
	order  []int32 // item indexes by decreasing length
	starts []int32 // counting sort: per length, where its items start in order
}

// Pack assigns items of the given lengths (tokens, 1 to capacity) to at most
// bins bins of capacity tokens each (bins <= 0: as many as needed), and returns
// each item's bin and the number of bins used; used bins are 0 to used-1.
//
// Items are placed one after the other: the first ones, lengths[:first], in the
// given order (they were carried over from earlier steps and must not starve),
// then the others by decreasing length, equal ones by index. Each goes to the
// bin with the least room among those it fits in, the lowest bin index among
// equals; an empty bin has room for capacity tokens. An item that fits nowhere
// when its turn comes gets [Unplaced].
//
// Pack fails with an [*ItemError] that names the first item out of range, and
// for a capacity outside 1 to [MaxCapacity] or first outside 0 to len(lengths).
// bin has len(lengths) entries and belongs to the Packer: it is valid until the
// next call. Time is O(n log n + capacity), in practice linear; nothing is
// allocated once the scratch has grown.
func (p *Packer) Pack(lengths []int32, first int, capacity int32, bins int) (bin []int32, used int, err error) {
	if err := check(lengths, first, capacity); err != nil {
		return nil, 0, err
	}
	if bins <= 0 || bins > len(lengths) {
		bins = len(lengths) // no more can be used
	}
	p.open.reset(capacity, bins)
	p.bin = grow(p.bin, len(lengths))
	for i, n := range lengths[:first] {
		p.bin[i] = p.open.place(n)
	}
	for _, i := range p.decreasing(lengths, first, capacity) {
		p.bin[i] = p.open.place(lengths[i])
	}
	return p.bin, int(p.open.used), nil
}

func check(lengths []int32, first int, capacity int32) error {
	if capacity < 1 || capacity > MaxCapacity {
		return fmt.Errorf("bin capacity %d is not in 1 to %d tokens", capacity, MaxCapacity)
	}
	if first < 0 || first > len(lengths) {
		return fmt.Errorf("%d items to place first, but there are %d", first, len(lengths))
	}
	for i, n := range lengths {
		if n < 1 || n > capacity {
			return &ItemError{Index: i, Length: n, Capacity: capacity}
		}
	}
	return nil
}

// decreasing returns the indexes first..len(lengths)-1 by decreasing length,
// equal ones by index: a counting sort, as lengths are small numbers.
func (p *Packer) decreasing(lengths []int32, first int, capacity int32) []int32 {
	p.starts = grow(p.starts, int(capacity)+1)
	clear(p.starts)
	for _, n := range lengths[first:] {
		p.starts[n]++
	}
	sum := int32(0)
	for n := capacity; n >= 0; n-- {
		count := p.starts[n]
		p.starts[n] = sum
		sum += count
	}
	p.order = grow(p.order, len(lengths)-first)
	for i, n := range lengths[first:] {
		p.order[p.starts[n]] = int32(first + i)
		p.starts[n]++
	}
	return p.order
}

// grow returns s with length n, of undefined content, reallocated only if it must be.
func grow[T any](s []T, n int) []T {
	return slices.Grow(s[:0], n)[:n]
}
