package order

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// Key is the randomness of one purpose: it is derived from the job's seed and
// names, never from state, so that any position can be computed directly.
type Key uint64

// NewKey derives the key of one purpose ("chunks", "samples") in one epoch of a
// source.
func NewKey(seed uint64, source, purpose string, epoch int64) Key {
	h := sha256.New()
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	h.Write(b[:])
	binary.LittleEndian.PutUint64(b[:], uint64(epoch))
	h.Write(b[:])
	binary.LittleEndian.PutUint64(b[:], uint64(len(source)))
	h.Write(b[:])
	h.Write([]byte(source))
	h.Write([]byte(purpose))
	return Key(binary.LittleEndian.Uint64(h.Sum(b[:0])))
}

// Hash mixes x into a word that looks random under the key. It is the finalizer
// of SplitMix64 (Steele, Lea, Flood, 2014), applied twice.
func (k Key) Hash(x uint64) uint64 {
	return mix(mix(x+uint64(k)) ^ bits.RotateLeft64(uint64(k), 32))
}

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// feistelRounds is enough for the balanced network to look random at every
// size we use; four is the Luby-Rackoff minimum, six leaves a margin.
const feistelRounds = 6

// Permutation is a keyed bijection of 0..n-1 in constant memory: a balanced
// Feistel network over the next even power of two, walked along its cycle until
// it lands inside (Black and Rogaway, 2002). The expected walk is under four
// rounds of the network. It is a value, safe for concurrent use.
type Permutation struct {
	n    uint64
	half uint   // bits of one half
	mask uint64 // half bits set
	key  Key
}

// NewPermutation returns the permutation of 0..n-1 under key. n must be positive.
func NewPermutation(n int64, key Key) Permutation {
	width := bits.Len64(uint64(n - 1))
	half := uint(width+1) / 2
	return Permutation{n: uint64(n), half: half, mask: 1<<half - 1, key: key}
}

// At returns the image of i, which must be in 0..n-1.
func (p Permutation) At(i int64) int64 {
	x := uint64(i)
	for {
		x = p.network(x)
		if x < p.n {
			return int64(x)
		}
	}
}

func (p Permutation) network(x uint64) uint64 {
	left, right := x>>p.half, x&p.mask
	for round := range uint64(feistelRounds) {
		left, right = right, left^(p.key.Hash(right<<8|round)&p.mask)
	}
	return left<<p.half | right
}
