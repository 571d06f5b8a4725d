package tokenize

import (
	"math/bits"
	"unicode/utf8"
)

// pairTable holds the merges of a tokenizer.json, which name the two tokens that
// merge. In a rank file any two do whose bytes joined are a token.
type pairTable struct {
	slots   []pairSlot // open addressing, linear probing, at most half full
	shift   uint
	bits    []uint64 // a bit for each of 4 parts of a slot, set if a pair falls there
	results []int32  // by rank, the token that the merge makes
}

type pairSlot struct {
	key  uint64 // left token above the right one, plus 1: 0 is an empty slot
	rank int32
}

// newPairTable has room for n merges.
func newPairTable(n int) *pairTable {
	width := max(bits.Len(uint(2*n)|1), 6)
	return &pairTable{
		slots: make([]pairSlot, 1<<width), shift: uint(64 - width),
		bits: make([]uint64, 1<<width/16), results: make([]int32, 0, n),
	}
}

func pairKey(left, right int32) uint64 { return uint64(left)<<32 | uint64(right) + 1 }

// add adds the next merge, by rank. A pair that is there already gets the new rank.
func (p *pairTable) add(left, right, result int32) {
	key := pairKey(left, right)
	hash := mix(key)
	bit := hash >> (p.shift - 2)
	p.bits[bit/64] |= 1 << (bit % 64)
	mask := uint64(len(p.slots) - 1)
	i := hash >> p.shift
	for p.slots[i].key != 0 && p.slots[i].key != key {
		i = (i + 1) & mask
	}
	p.slots[i] = pairSlot{key, int32(len(p.results))}
	p.results = append(p.results, result)
}

// rank returns the rank at which two tokens merge, or none. The bits, which fit a
// core's cache, reject 9 of 10 of those that do not.
func (p *pairTable) rank(left, right int32) int32 {
	key := pairKey(left, right)
	hash := mix(key)
	if bit := hash >> (p.shift - 2); p.bits[bit/64]>>(bit%64)&1 == 0 {
		return none
	}
	mask := uint64(len(p.slots) - 1)
	for i := hash >> p.shift; ; i = (i + 1) & mask {
		switch p.slots[i].key {
		case key:
			return p.slots[i].rank
		case 0:
			return none
		}
	}
}

// unknown is what a character becomes that has no token of its own.
type unknown struct {
	bytes  *[256]int32 // the tokens of its bytes, or nil
	id     int32       // without them: this token, or none for nothing at all
	fuse   bool        // one for a run of such characters
	single bool        // characters are bytes: the model is over the characters of a byte-level alphabet
}

// appendRunes appends the tokens with which merging begins.
func (v *vocab) appendRunes(dst []int32, piece []byte) []int32 {
	fused := false
	for i := 0; i < len(piece); {
		id, width := v.runeToken(piece, i)
		switch {
		case id != none:
			dst = append(dst, id)
		case v.unk.bytes != nil:
			for _, b := range piece[i : i+width] {
				dst = append(dst, v.unk.bytes[b])
			}
		case v.unk.id != none && (!fused || !v.unk.fuse):
			dst = append(dst, v.unk.id)
		}
		fused = id == none
		i += width
	}
	return dst
}

// runeToken returns the token of the character at t[i], or none, and its width.
func (v *vocab) runeToken(t []byte, i int) (id int32, width int) {
	if t[i] < utf8.RuneSelf || v.unk.single {
		return v.bytes[t[i]], 1
	}
	_, width = utf8.DecodeRune(t[i:])
	key := wordKey(t, i, i+width)
	return v.word(key, wordHash(key, width), t[i:i+width]), width
}
