package sourceloader

import "slices"

// slabs holds the tokens of many samples in a few pieces of memory. It grows by
// another piece and moves nothing: one growing slice would write every token two
// or three times over and hold half its memory in vain.
type slabs [][]int32

// span is where a sample lies.
type span struct{ slab, start, length int32 }

// Slabs double from the first size to the last: small sources have small blocks,
// and in large ones the end of a slab that no sample fits is a small part.
const (
	firstSlab = 1 << 10 // tokens
	lastSlab  = 1 << 18
)

// add copies the tokens of one sample.
func (s *slabs) add(tokens []int32) span {
	if last := len(*s) - 1; last < 0 || cap((*s)[last])-len((*s)[last]) < len(tokens) {
		size := 0
		if last >= 0 {
			size = cap((*s)[last])
		}
		*s = append(*s, make([]int32, 0, slabFor(len(*s), size, len(tokens))))
	}
	last := len(*s) - 1
	start := len((*s)[last])
	(*s)[last] = append((*s)[last], tokens...)
	return span{int32(last), int32(start), int32(len(tokens))}
}

// slabFor is the size of the slab behind n others, the last of which has a size, for a sample that finds no room there.
func slabFor(n, last, tokens int) int {
	size := firstSlab
	if n > 0 {
		size = min(2*last, lastSlab)
	}
	return max(size, tokens)
}

// slabBytes is the memory of a slab.
func slabBytes(tokens int) int64 { return 24 + 4*int64(tokens) }

// at returns the tokens of a sample; the caller must not change them.
func (s slabs) at(p span) []int32 {
	end := p.start + p.length
	return s[p.slab][p.start:end:end]
}

// trim gives back the room that is left in the last slab.
func (s slabs) trim() {
	if last := len(s) - 1; last >= 0 {
		s[last] = slices.Clip(slices.Clone(s[last]))
	}
}

func (s slabs) bytes() int64 {
	n := int64(0)
	for _, slab := range s {
		n += slabBytes(cap(slab))
	}
	return n
}
