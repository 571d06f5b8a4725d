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

// sort returns the items that have a bin in order, in the memory of order or the sorter's; the
// sorter keeps the other one.
func (s *tokenSorter) sort(items []sized, bin []int32, order []sized) []sized {
	most := int32(0)
	for i := range items {
		most = max(most, items[i].tokens)
	}
	width := min(bits.Len32(uint32(most)), tokenDigit)
	s.counts = grow(s.counts, 1<<width)
	order = s.pass(items, grow(order, len(items)), most, 0, bin)
	for at := width; most>>at > 0; at += width {
		order, s.spare = s.pass(order, grow(s.spare, len(order)), most, at, nil), order
	}
	return order
}

// pass is a stable counting sort by the digit of most-tokens at a bit, of all items or those with a bin.
func (s *tokenSorter) pass(from, to []sized, most int32, at int, bin []int32) []sized {
	counts, mask := s.counts, int32(len(s.counts)-1)
	clear(counts)
	for i := range from {
		if bin == nil || bin[i] != Unplaced {
			counts[(most-from[i].tokens)>>at&mask]++
		}
	}
	sum := int32(0)
	for d, count := range counts {
		counts[d] = sum
		sum += count
	}
	for i := range from {
		if bin == nil || bin[i] != Unplaced {
			d := &counts[(most-from[i].tokens)>>at&mask]
			to[*d] = from[i]
			*d++
		}
	}
	return to[:sum]
}
