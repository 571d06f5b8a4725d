package tokenize

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

const (
	// none is the rank of a pair that does not merge and the id of a piece
	// that is not a token: above every id, so that a minimum never picks it.
	none = int32(1<<31 - 1)

	// idBits bound the ids, so that a pair of tokens and what they merge to
	// fit into one word of the pair table. The largest encoding has 199,998.
	idBits = 18
	maxIDs = 1 << idBits
)

// vocab answers the two questions of byte-pair encoding, both without
// allocating: which token is this piece, and which token do these two make?
// It is read-only once built. cl100k_base takes 10 MB, o200k_base 20 MB.
type vocab struct {
	text    []byte   // all tokens on end
	offsets []uint32 // token id is text[offsets[id]:offsets[id+1]]; empty for ids not in use
	longest int      // bytes of the longest token

	words     []wordSlot // open addressing, linear probing, at most half full
	wordShift uint

	pairs     []uint64 // (left, right, merged), likewise; 0 is an empty slot
	pairShift uint
	pairBits  []uint64 // a bit for each of 4 parts of a pair slot, set if a pair falls there

	bytes     [256]int32       // the token of each single byte
	bytePairs [256 * 256]int32 // what two single bytes merge to, or none
}

// wordSlot holds one token by its key. The key of a token of up to 8 bytes is
// the bytes themselves, otherwise a hash that has to be confirmed.
type wordSlot struct {
	key uint64
	id  int32
	n   int32 // length in bytes; 0 is an empty slot
}

// newVocab indexes tokens, whose index is their id and rank. An empty token is
// an id not in use. All single bytes must be there and no token twice, and
// there must be fewer than maxIDs.
func newVocab(tokens [][]byte) *vocab {
	v := &vocab{offsets: make([]uint32, 1, len(tokens)+1)}
	for _, t := range tokens {
		v.text = append(v.text, t...)
		v.offsets = append(v.offsets, uint32(len(v.text)))
		v.longest = max(v.longest, len(t))
	}
	v.words, v.wordShift = table[wordSlot](len(tokens))
	for id, t := range tokens {
		if len(t) > 0 {
			v.addWord(t, int32(id))
		}
		if len(t) == 1 {
			v.bytes[t[0]] = int32(id)
		}
	}
	v.indexPairs()
	return v
}

// table returns an array for n entries of at most half its size, a power of
// two, and the shift that makes an index of a 64-bit hash.
func table[T any](n int) ([]T, uint) {
	width := bits.Len(uint(2*n) | 1)
	return make([]T, 1<<width), uint(64 - width)
}

// indexPairs collects every way in which two tokens make a third.
func (v *vocab) indexPairs() {
	for i := range v.bytePairs {
		v.bytePairs[i] = none
	}
	var found []uint64
	for id := range int32(len(v.offsets) - 1) {
		t := v.token(id)
		for cut := 1; cut < len(t); cut++ {
			a, b := v.word(t, 0, cut), v.word(t, cut, len(t))
			if a == none || b == none {
				continue
			}
			found = append(found, uint64(a)<<(2*idBits)|uint64(b)<<idBits|uint64(id))
			if len(t) == 2 {
				v.bytePairs[int(t[0])<<8|int(t[1])] = id
			}
		}
	}
	v.pairs, v.pairShift = table[uint64](len(found))
	v.pairBits = make([]uint64, len(v.pairs)/16)
	mask := uint64(len(v.pairs) - 1)
	for _, entry := range found {
		h := pairHash(entry >> idBits)
		bit := h >> (v.pairShift - 2)
		v.pairBits[bit/64] |= 1 << (bit % 64)
		i := h >> v.pairShift
		for v.pairs[i] != 0 {
			i = (i + 1) & mask
		}
		v.pairs[i] = entry
	}
}

// merged returns the token that a and b make, or none. No entry is 0, because
// what two tokens make cannot be one of them.
func (v *vocab) merged(a, b int32) int32 {
	key := uint64(a)<<idBits | uint64(b)
	h := pairHash(key)
	// Most pairs make nothing. The bits say so for 9 of 10 of those from a
	// core's own cache, where the table would be a trip to memory.
	if bit := h >> (v.pairShift - 2); v.pairBits[bit/64]>>(bit%64)&1 == 0 {
		return none
	}
	mask := uint64(len(v.pairs) - 1)
	for i := h >> v.pairShift; ; i = (i + 1) & mask {
		entry := v.pairs[i&mask]
		if entry>>idBits == key && entry != 0 {
			return int32(entry & (maxIDs - 1))
		}
		if entry == 0 {
			return none
		}
	}
}

func pairHash(key uint64) uint64 { return key * 0x9E3779B97F4A7C15 }

// token returns the bytes of an id in range, empty if the id is not in use.
func (v *vocab) token(id int32) []byte {
	return v.text[v.offsets[id]:v.offsets[id+1]]
}

// word returns the token that is t[i:j], i < j, or none.
func (v *vocab) word(t []byte, i, j int) int32 {
	key := wordKey(t, i, j)
	return v.wordByKey(key, t[i:j])
}

// wordByKey is word for a piece whose key is known.
func (v *vocab) wordByKey(key uint64, piece []byte) int32 {
	n := int32(len(piece))
	mask := uint64(len(v.words) - 1)
	for i := wordHash(key, n) >> v.wordShift; ; i = (i + 1) & mask {
		slot := &v.words[i&mask]
		if slot.key == key && slot.n == n {
			if n <= 8 || bytes.Equal(v.token(slot.id), piece) {
				return slot.id
			}
		}
		if slot.n == 0 {
			return none
		}
	}
}

func (v *vocab) addWord(t []byte, id int32) {
	key, n := wordKey(t, 0, len(t)), int32(len(t))
	mask := uint64(len(v.words) - 1)
	i := wordHash(key, n) >> v.wordShift
	for v.words[i].n != 0 {
		i = (i + 1) & mask
	}
	v.words[i] = wordSlot{key: key, id: id, n: n}
}

// wordKey is t[i:j] itself for up to 8 bytes, else a hash of it. It reads one
// word where the text has 8 bytes left, which is nearly always.
func wordKey(t []byte, i, j int) uint64 {
	n := j - i
	if n > 8 {
		return longKey(t[i:j])
	}
	if i+8 <= len(t) {
		return binary.LittleEndian.Uint64(t[i:]) & (1<<(8*uint(n)) - 1)
	}
	var key uint64
	for k := j - 1; k >= i; k-- {
		key = key<<8 | uint64(t[k])
	}
	return key
}

// longKey hashes more than 8 bytes, the last ones with an overlap.
func longKey(p []byte) uint64 {
	h := binary.LittleEndian.Uint64(p[len(p)-8:])
	for len(p) > 8 {
		h = mix(h ^ binary.LittleEndian.Uint64(p))
		p = p[8:]
	}
	return h
}

func wordHash(key uint64, n int32) uint64 {
	return mix(key ^ uint64(n)<<56)
}

// mix folds the 128-bit product with a constant: every bit of the result
// depends on every bit of x.
func mix(x uint64) uint64 {
	hi, lo := bits.Mul64(x^0xA0761D6478BD642F, 0xE7037ED1A0B428DB)
	return hi ^ lo
}
