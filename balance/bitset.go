package balance

import "math/bits"

// bitset is a set of small integers that finds the next member in a few word
// operations: words[0] has a bit per number, and each level above a bit per
// word of the level below, up to a level of one word (a 64-ary tree).
type bitset struct {
	levels [][]uint64
	size   int32 // numbers 0 to size-1
}

// reset empties the set and lets it hold 0 to size-1. The scratch is cleared in
// full: one bit a number is next to nothing.
func (s *bitset) reset(size int32) {
	s.size = size
	depth := 0
	for n := int(size); ; depth++ {
		n = (n + 63) / 64
		if depth == len(s.levels) {
			s.levels = append(s.levels, nil)
		}
		s.levels[depth] = grow(s.levels[depth], n)
		clear(s.levels[depth])
		if n <= 1 {
			break
		}
	}
	s.levels = s.levels[:depth+1]
}

// copy makes the set equal to another one.
func (s *bitset) copy(from *bitset) {
	s.size = from.size
	for len(s.levels) < len(from.levels) {
		s.levels = append(s.levels, nil)
	}
	s.levels = s.levels[:len(from.levels)]
	for i, words := range from.levels {
		s.levels[i] = append(s.levels[i][:0], words...)
	}
}

func (s *bitset) has(i int32) bool {
	return s.levels[0][i>>6]>>(i&63)&1 != 0
}

func (s *bitset) add(i int32) {
	for _, words := range s.levels {
		word := &words[i>>6]
		old := *word
		*word |= 1 << (i & 63)
		if old != 0 {
			return // the levels above know this word
		}
		i >>= 6
	}
}

func (s *bitset) remove(i int32) {
	for _, words := range s.levels {
		word := &words[i>>6]
		*word &^= 1 << (i & 63)
		if *word != 0 {
			return
		}
		i >>= 6
	}
}

// next returns the lowest member at or above i >= 0, or -1.
func (s *bitset) next(i int32) int32 {
	if i >= s.size {
		return -1
	}
	for up := range s.levels {
		words := s.levels[up]
		at := int(i >> 6)
		if at >= len(words) {
			return -1
		}
		if rest := words[at] >> (i & 63); rest != 0 {
			return s.lowest(up, i+int32(bits.TrailingZeros64(rest)))
		}
		i = i>>6 + 1 // nothing left in this word: ask for the next one
	}
	return -1
}

// lowest returns the lowest member below bit i of the given level.
func (s *bitset) lowest(level int, i int32) int32 {
	for level--; level >= 0; level-- {
		i = i<<6 + int32(bits.TrailingZeros64(s.levels[level][i]))
	}
	return i
}

// prev returns the highest member at or below i, or -1; i is below size.
func (s *bitset) prev(i int32) int32 {
	if i < 0 {
		return -1
	}
	for up, words := range s.levels {
		if rest := words[i>>6] << (63 - i&63); rest != 0 {
			return s.highest(up, i-int32(bits.LeadingZeros64(rest)))
		}
		if i = i>>6 - 1; i < 0 { // nothing left in this word: ask for the one before
			break
		}
	}
	return -1
}

// highest returns the highest member below bit i of the given level.
func (s *bitset) highest(level int, i int32) int32 {
	for level--; level >= 0; level-- {
		i = i<<6 + 63 - int32(bits.LeadingZeros64(s.levels[level][i]))
	}
	return i
}

// window returns the members i to i+63, i in the lowest bit. i may be negative
// or past the end, where no members are.
func (s *bitset) window(i int32) (members uint64) {
	words, at, shift := s.levels[0], int(i>>6), i&63
	if at >= 0 && at < len(words) {
		members = words[at] >> shift
	}
	if at++; shift != 0 && at >= 0 && at < len(words) {
		members |= words[at] << (64 - shift)
	}
	return members
}
