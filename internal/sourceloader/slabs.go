package sourceloader

import "slices"

// slabs holds the tokens of many samples in a few pieces of memory. It grows by
// another piece and moves nothing: one growing slice would write every token two
// or three times over and hold half its memory in vain. Large samples have pieces of their own, so that
// little of the one that small samples go to is left when it is full. The zero value is empty.
type slabs struct {
	all   [][]int32
	open  int // that small samples go to
	total int // tokens that were added
}

// span is where a sample lies.
type span struct{ slab, start, length int32 }

// Slabs are as large as all before them together, from the first size to the last: small sources have
// small blocks.
const (
	firstSlab = 1 << 10 // tokens
	lastSlab  = 1 << 18
	// ownSlab is the part of a slab beyond which a sample has one of its own.
	ownSlab = 8
)

// add copies the tokens of one sample.
func (s *slabs) add(tokens []int32) span {
	at := s.open
	if len(s.all) == 0 || cap(s.all[at])-len(s.all[at]) < len(tokens) {
		size, own := slabFor(s.total, len(tokens))
		s.all = append(s.all, make([]int32, 0, size))
		if at = len(s.all) - 1; !own {
			s.open = at
		}
	}
	s.total += len(tokens)
	start := len(s.all[at])
	s.all[at] = append(s.all[at], tokens...)
	return span{int32(at), int32(start), int32(len(tokens))}
}

// slabFor is the size of the slab behind total tokens, for a sample that finds no room in the one that is open, and whether
// the sample has it alone.
func slabFor(total, tokens int) (size int, own bool) {
	size = min(max(total, firstSlab), lastSlab)
	if ownSlab*tokens > size {
		return tokens, true
	}
	return size, false
}

// slabBytes is the memory of a slab.
func slabBytes(tokens int) int64 { return 24 + 4*int64(tokens) }

// at returns the tokens of a sample; the caller must not change them.
func (s *slabs) at(p span) []int32 {
	end := p.start + p.length
	return s.all[p.slab][p.start:end:end]
}

// trim gives back the room that is left in the open slab.
func (s *slabs) trim() {
	if len(s.all) > 0 {
		s.all[s.open] = slices.Clip(slices.Clone(s.all[s.open]))
	}
}

// forget lets go of all samples, and uses the memory of the open slab again.
func (s *slabs) forget() {
	if len(s.all) > 0 {
		s.all, s.open = [][]int32{s.all[s.open][:0]}, 0
	}
}

func (s *slabs) bytes() int64 {
	n := int64(0)
	for _, slab := range s.all {
		n += slabBytes(cap(slab))
	}
	return n
}
