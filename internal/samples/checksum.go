package samples

import (
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"
)

// Checksum is a fast hash over samples and their origins: two readings with
// the same checksum gave the same samples. It detects changed data, not an adversary.
// The zero value is ready.
type Checksum struct {
	hash  xxhash.Digest
	begun bool
	buf   []byte // not hashed yet: many small writes to the hash are slow
}

// checksumBuffer is the size of the buffer: longer pieces are hashed in place, which
// costs less than a copy.
const checksumBuffer = 1 << 10

// Origin is the place of a sample in its source: file number, row, and piece of
// the row. It decides the sample's place in its block.
type Origin struct {
	File  int32
	Row   int64
	Piece int32
}

// Add adds a sample: its tokens, the value of each kept column (nil if none),
// its images, whose data is represented by its digest, and the bounds of its tokens without
// loss. These come behind a number that is no row, and only if there are any.
func (c *Checksum) Add(at Origin, tokens []int32, kept [][]byte, images []Image, masked []int32) {
	c.room(8 + 4*4)
	c.buf = binary.LittleEndian.AppendUint64(c.buf, uint64(at.Row))
	for _, n := range [...]int{int(at.File), int(at.Piece), len(tokens), len(images)} {
		c.buf = binary.LittleEndian.AppendUint32(c.buf, uint32(n))
	}
	c.put(raw(tokens))
	for _, v := range kept {
		size := uint64(0) // nothing
		if v != nil {
			size = uint64(len(v)) + 1
		}
		c.AddNumber(size)
		c.put(v)
	}
	for i := range images {
		x := &images[i]
		c.room(3*4 + len(x.SHA))
		for _, n := range [...]int32{x.At, x.H, x.W} {
			c.buf = binary.LittleEndian.AppendUint32(c.buf, uint32(n))
		}
		c.buf = append(c.buf, x.SHA[:]...)
	}
	if len(masked) > 0 {
		c.AddNumber(math.MaxUint64)
		c.AddNumber(uint64(len(masked)))
		c.put(raw(masked))
	}
}

// AddNumber adds a number.
func (c *Checksum) AddNumber(n uint64) {
	c.room(8)
	c.buf = binary.LittleEndian.AppendUint64(c.buf, n)
}

// Sum returns the hash of everything added, never 0, and resets the Checksum.
func (c *Checksum) Sum() uint64 {
	c.flush()
	c.begun = false
	return max(c.hash.Sum64(), 1)
}

// put adds bytes.
func (c *Checksum) put(v []byte) {
	if c.room(len(v)); len(v) > checksumBuffer {
		c.hash.Write(v)
		return
	}
	c.buf = append(c.buf, v...)
}

// room flushes the buffer if n bytes do not fit.
func (c *Checksum) room(n int) {
	if c.buf == nil {
		c.buf = make([]byte, 0, checksumBuffer)
	}
	if len(c.buf)+n > checksumBuffer {
		c.flush()
	}
}

// flush hashes the buffer.
func (c *Checksum) flush() {
	if !c.begun {
		c.hash.Reset()
		c.begun = true
	}
	c.hash.Write(c.buf)
	c.buf = c.buf[:0]
}
