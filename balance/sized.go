package balance

import "math/bits"

// tokenDigit is the bits of a length that one pass sorts by: most context lengths
// are one digit.
const tokenDigit = 14

// tokenSorter sorts items by decreasing tokens and is stable. It keeps
// the second buffer of a radix sort between calls.
type tokenSorter struct {
	spare  []sized
	counts []int32
}

// sort returns the items in order, in their memory or the sorter's; the
// sorter keeps the other one.
func (s *tokenSorter) sort(items []sized) []sized {
	most := int32(0)
	for i := range items {
		most = max(most, items[i].tokens)
	}
	width := min(bits.Len32(uint32(most)), tokenDigit)
	s.counts = grow(s.counts, 1<<width)
	other := grow(s.spare, len(items))
	for at := 0; most>>at > 0; at += width {
		s.pass(items, other, most, at)
		items, other = other, items
	}
	s.spare = other
	return items
}

// pass is a stable counting sort by the digit of most-tokens at a bit.
func (s *tokenSorter) pass(from, to []sized, most int32, at int) {
	counts, mask := s.counts, int32(len(s.counts)-1)
	clear(counts)
	for i := range from {
		counts[(most-from[i].tokens)>>at&mask]++
	}
	sum := int32(0)
	for d, count := range counts {
		counts[d] = sum
		sum += count
	}
	for i := range from {
		d := (most - from[i].tokens) >> at & mask
		to[counts[d]] = from[i]
		counts[d]++
	}
}
