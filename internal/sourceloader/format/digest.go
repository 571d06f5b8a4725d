package format

import (
	"hash/maphash"
)

// digestSeed makes digests of this process comparable with each other only.
var digestSeed = maphash.MakeSeed()

// Digest is the same for batches that were made in this process of equal records.
func (b *Batch) Digest() uint64 {
	var h maphash.Hash
	h.SetSeed(digestSeed)
	maphash.WriteComparable(&h, len(b.rows))
	for i := range b.rows {
		maphash.WriteComparable(&h, [3]int64{b.rows[i], int64(b.part(i)), int64(b.places[i])})
	}
	for _, err := range b.bad {
		h.WriteString(err.Error())
	}
	for i := range b.columns {
		b.columns[i].digest(&h)
	}
	return h.Sum64()
}

func (c *column) digest(h *maphash.Hash) {
	for i := range c.kinds {
		maphash.WriteComparable(h, [3]int64{int64(c.kinds[i]), c.numbers[i], int64(c.sizes[i])})
	}
	h.Write(c.bytes)
	for _, id := range c.tokens {
		maphash.WriteComparable(h, id)
	}
	if c.elements != nil {
		c.elements.digest(h)
	}
}
