package balance

import (
	"cmp"
	"math/bits"
	"slices"
)

// costed is a number with its cost: an item, a bin with its load, a set.
type costed struct {
	cost int64
	item int32
}

// sorter sorts by decreasing cost, equal ones by increasing item. It keeps the
// second buffer of a radix sort between calls.
type sorter struct {
	spare  []costed
	counts [1 << radixBits]int32
}

const (
	radixBits  = 11  // of a digit: its counters stay in the first-level cache
	radixItems = 256 // below, comparing is faster than counting
)

// sort returns the entries in order, in their memory or the sorter's;
// the sorter keeps the other one. Entries must come by increasing item.
func (s *sorter) sort(entries []costed) []costed {
	if len(entries) < radixItems {
		slices.SortFunc(entries, func(a, b costed) int {
			return cmp.Or(cmp.Compare(b.cost, a.cost), cmp.Compare(a.item, b.item))
		})
		return entries
	}
	low, high := entries[0].cost, entries[0].cost
	for _, e := range entries {
		low, high = min(low, e.cost), max(high, e.cost)
	}
	width := uint(radixBits)
	if len(entries) < 1<<radixBits {
		width = 8
	}
	other := grow(s.spare, len(entries))
	for at := uint(0); at < uint(bits.Len64(uint64(high-low))); at += width {
		s.pass(entries, other, high, at, width)
		entries, other = other, entries
	}
	s.spare = other
	return entries
}

// pass is a stable counting sort by the digit of high-cost at a bit.
func (s *sorter) pass(from, to []costed, high int64, at, width uint) {
	counts := s.counts[:1<<width]
	mask := uint64(len(counts) - 1)
	clear(counts)
	for _, e := range from {
		counts[uint64(high-e.cost)>>at&mask]++
	}
	sum := int32(0)
	for d, count := range counts {
		counts[d] = sum
		sum += count
	}
	for _, e := range from {
		d := uint64(high-e.cost) >> at & mask
		to[counts[d]] = e
		counts[d]++
	}
}
