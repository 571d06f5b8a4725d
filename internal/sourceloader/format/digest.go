package format

import (
	"encoding/binary"
	"hash/maphash"
)

// digestSeed makes digests of this process comparable with each other only.
var digestSeed = maphash.MakeSeed()

// Digest is the same for batches that were made in this process of equal records, wherever
// their values lie. Of bad records it is which these are, and not what their errors say: the text of an
// exception may have an address or a time in it, and be another one when the record is worked on again.
func (b *Batch) Digest() uint64 {
	var h maphash.Hash
	h.SetSeed(digestSeed)
	maphash.WriteComparable(&h, len(b.rows))
	for i := range b.rows {
		maphash.WriteComparable(&h, [3]int64{b.rows[i], int64(b.part(i)), int64(b.places[i])})
	}
	for i := range b.columns {
		b.columns[i].digest(&h, 0, len(b.columns[i].kinds))
	}
	return h.Sum64()
}

// digest adds values lo to hi.
func (c *column) digest(h *maphash.Hash, lo, hi int) {
	for i := lo; i < hi; i++ {
		kind, at, n := c.kinds[i]&^isAbsent, c.numbers[i], c.sizes[i]
		number := at
		if kind == String || kind == Bytes || kind == Tokens || kind == List {
			number = 0 // where a value lies is no part of it
		}
		maphash.WriteComparable(h, [3]int64{int64(c.kinds[i]), number, int64(n)})
		switch kind {
		case String, Bytes:
			h.Write(c.bytes[at : at+int64(n)])
		case Tokens:
			digestIDs(h, c.tokens[at:at+int64(n)])
		case List:
			c.elements.digest(h, int(at), int(at)+int(n))
		}
	}
}

func digestIDs(h *maphash.Hash, ids []int32) {
	var buf [512]byte
	for len(ids) > 0 {
		n := min(len(ids), len(buf)/4)
		for i, id := range ids[:n] {
			binary.LittleEndian.PutUint32(buf[4*i:], uint32(id))
		}
		h.Write(buf[:4*n])
		ids = ids[n:]
	}
}
