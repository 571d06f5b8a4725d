package tokenize

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// none is the id of a piece that is not a token, and the rank of a pair that
// does not merge: above every id and rank, so that a minimum never picks it. The
// largest published files have 262,144 ids and 514,906 merges.
const none = int32(1 << 24)

// vocab looks up the token of a piece without allocating. That also finds the merge
// of two tokens, which is the token of their bytes. It is read-only once built. cl100k_base
// takes 6 MB, o200k_base 11 MB.
type vocab struct {
	text    []byte   // all tokens joined
	offsets []uint32 // token id is text[offsets[id]:offsets[id+1]]; empty for ids not in use

	words     []wordSlot // open addressing, linear probing, at most half full
	wordShift uint
	wordBits  []uint64 // a bit for each of 4 parts of a slot, set if a word falls there
	tails     []uint64 // by id, the last 8 bytes of tokens of more than 8

	bytes     [256]int32       // the token of each single byte
	bytePairs [256 * 256]int32 // the rank of two single bytes, or none

	// Of a tokenizer.json; see bpe.go.
	pairs *pairTable // which tokens merge; nil: those whose bytes joined are a token, whose id is the rank
	runes bool       // a piece begins as one token a character, not a byte
	order []int32    // of a SentencePiece model, by id: the rank at which neighbours merge into a piece; see sentencepiece.go
	unk   unknown    // with runes: what a character becomes that is no token
}

// rank returns the rank at which the tokens left and right merge, of the bytes t[i:j], or none.
func (v *vocab) rank(t []byte, i, j int, left, right int32) int32 {
	if v.pairs != nil {
		return v.pairs.rank(left, right)
	}
	id := v.merged(t, i, j)
	if id == none || v.order == nil {
		return id
	}
	if left == frozen || right == frozen {
		return none
	}
	return v.order[id]
}

// result returns the token that a merge of this rank makes.
func (v *vocab) result(rank int32) int32 {
	if v.pairs != nil {
		return v.pairs.results[rank]
	}
	return rank
}

// wordSlot holds one token by its key: the bytes themselves of a token of up to 8
// bytes, otherwise a hash that has to be confirmed.
type wordSlot struct {
	key uint64
	id  int32
	n   int32 // length in bytes; 0 is an empty slot
}

// newVocab indexes tokens, whose index is their id and rank. An empty token is
// an unused id. All single bytes must be present, no token twice, and there are
// at most none tokens.
func newVocab(tokens [][]byte) *vocab {
	v := blankVocab(tokens)
	for id, t := range tokens {
		if len(t) > 0 {
			v.addWord(t, int32(id))
		}
		switch len(t) {
		case 1:
			v.bytes[t[0]] = int32(id)
		case 2:
			v.bytePairs[int(t[0])<<8|int(t[1])] = int32(id)
		}
	}
	return v
}

// blankVocab has the bytes of tokens, and none of their words yet.
func blankVocab(tokens [][]byte) *vocab {
	v := &vocab{offsets: make([]uint32, 1, len(tokens)+1)}
	for _, t := range tokens {
		v.text = append(v.text, t...)
		v.offsets = append(v.offsets, uint32(len(v.text)))
	}
	width := bits.Len(uint(2*len(tokens)) | 1)
	v.words, v.wordShift = make([]wordSlot, 1<<width), uint(64-width)
	v.wordBits = make([]uint64, max(1, len(v.words)/16))
	v.tails = make([]uint64, len(tokens))
	for i := range v.bytes {
		v.bytes[i] = none
	}
	for i := range v.bytePairs {
		v.bytePairs[i] = none
	}
	return v
}

// token returns the bytes of an id in range, empty if the id is not in use.
func (v *vocab) token(id int32) []byte {
	return v.text[v.offsets[id]:v.offsets[id+1]]
}

// merged returns the token t[i:j], i < j, or none, for bytes that are rarely a
// token. The bits, which fit a core's cache, reject 9 of 10 of those; the words
// would be a cache miss.
func (v *vocab) merged(t []byte, i, j int) int32 {
	key := wordKey(t, i, j)
	hash := wordHash(key, j-i)
	if bit := hash >> (v.wordShift - 2); v.wordBits[bit/64]>>(bit%64)&1 == 0 {
		return none
	}
	return v.word(key, hash, t[i:j])
}

// word returns the token of piece, or none, by the key and hash of piece.
func (v *vocab) word(key, hash uint64, piece []byte) int32 {
	mask := uint64(len(v.words) - 1)
	for i := hash >> v.wordShift; ; i = (i + 1) & mask {
		slot := &v.words[i&mask]
		if slot.key == key && int(slot.n) == len(piece) {
			if len(piece) <= 8 || v.confirms(slot.id, piece) {
				return slot.id
			}
		}
		if slot.n == 0 {
			return none
		}
	}
}

// confirms reports whether a token of the same key and length is a piece of more
// than 8 bytes.
func (v *vocab) confirms(id int32, piece []byte) bool {
	return v.tails[id] == tail(piece) && (len(piece) <= 16 || bytes.Equal(v.token(id), piece))
}

func (v *vocab) addWord(t []byte, id int32) {
	key := wordKey(t, 0, len(t))
	hash := wordHash(key, len(t))
	if len(t) > 8 {
		v.tails[id] = tail(t)
	}
	bit := hash >> (v.wordShift - 2)
	v.wordBits[bit/64] |= 1 << (bit % 64)
	mask := uint64(len(v.words) - 1)
	i := hash >> v.wordShift
	for v.words[i].n != 0 {
		i = (i + 1) & mask
	}
	v.words[i] = wordSlot{key: key, id: id, n: int32(len(t))}
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

// longKey hashes more than 8 bytes, the last ones with an overlap. The rounds are
// one-to-one: among pieces of up to 16 bytes with one key and one tail, there is
// no choice for the first 8 bytes, so that nothing else has to be compared.
func longKey(p []byte) uint64 {
	h := tail(p)
	for len(p) > 8 {
		h = (h ^ binary.LittleEndian.Uint64(p)) * 0xE7037ED1A0B428DB
		h ^= h >> 32
		p = p[8:]
	}
	return h
}

func tail(p []byte) uint64 { return binary.LittleEndian.Uint64(p[len(p)-8:]) }

func wordHash(key uint64, n int) uint64 {
	return mix(key ^ uint64(n)<<56)
}

// mix folds the 128-bit product with a constant: every bit of the result
// depends on every bit of x.
func mix(x uint64) uint64 {
	hi, lo := bits.Mul64(x^0xA0761D6478BD642F, 0xE7037ED1A0B428DB)
	return hi ^ lo
}
