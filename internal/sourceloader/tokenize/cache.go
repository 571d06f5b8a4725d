package tokenize

const (
	// cacheSlots is the number of pieces an encoder keeps, a power of two:
	// 16,384 slots of 64 bytes, 1 MiB, about one core's L2 cache.
	cacheSlots = 1 << 14

	slotBytes = 22 // longest piece kept: with its ids, one cache line
	slotIDs   = 10 // most tokens kept
)

// cache keeps the tokens of merged pieces. It is direct mapped: a new piece replaces
// the one in the same slot. Its content
// only saves time, because a hit equals the result of merging.
type cache []cacheSlot

type cacheSlot struct {
	bytes, count uint8 // bytes is 0 in an empty slot
	piece        [slotBytes]byte
	ids          [slotIDs]int32
}

// slot returns the slot of piece, or nil if it is too long to keep.
func (c cache) slot(hash uint64, piece []byte) *cacheSlot {
	if len(piece) > slotBytes || len(c) == 0 {
		return nil
	}
	return &c[hash&uint64(len(c)-1)]
}

// holds reports whether the slot has piece.
func (s *cacheSlot) holds(piece []byte) bool {
	return int(s.bytes) == len(piece) && string(s.piece[:s.bytes]) == string(piece)
}

// put stores piece, unless it has too many tokens.
func (s *cacheSlot) put(piece []byte, ids []int32) {
	if len(ids) > slotIDs {
		return
	}
	s.bytes, s.count = uint8(len(piece)), uint8(len(ids))
	copy(s.piece[:], piece)
	copy(s.ids[:], ids)
}
