package samples

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// Checksum is a fast hash over samples and where they come from: two readings with
// the same one gave the same samples. It finds data that changed, not an adversary.
// The zero value is ready.
type Checksum struct {
	hash  xxhash.Digest
	begun bool
	buf   []byte // what is not hashed yet: the hash takes many small pieces slowly
}

// checksumBuffer is how much is gathered: what is longer is hashed where it lies, for
// less than a copy of it takes.
const checksumBuffer = 1 << 10

// Origin is where a sample comes from: a file's number, a row of it, and a piece of
// the row. It decides where the sample comes in its block.
type Origin struct {
	File  int32
	Row   int64
	Piece int32
}

// Add takes a sample: its tokens, what each column kept of it (nil if nothing), and
// its images, of which the data is known by its digest.
func (c *Checksum) Add(at Origin, tokens []int32, kept [][]byte, images []Image) {
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
}

// AddNumber takes a number.
func (c *Checksum) AddNumber(n uint64) {
	c.room(8)
	c.buf = binary.LittleEndian.AppendUint64(c.buf, n)
}

// Sum returns the hash of what was taken, which is never 0, and forgets it.
func (c *Checksum) Sum() uint64 {
	c.flush()
	c.begun = false
	return max(c.hash.Sum64(), 1)
}

// put takes bytes.
func (c *Checksum) put(v []byte) {
	if c.room(len(v)); len(v) > checksumBuffer {
		c.hash.Write(v)
		return
	}
	c.buf = append(c.buf, v...)
}

// room makes room in the buffer, unless that is smaller than what is to come.
func (c *Checksum) room(n int) {
	if c.buf == nil {
		c.buf = make([]byte, 0, checksumBuffer)
	}
	if len(c.buf)+n > checksumBuffer {
		c.flush()
	}
}

// flush hashes what was gathered.
func (c *Checksum) flush() {
	if !c.begun {
		c.hash.Reset()
		c.begun = true
	}
	c.hash.Write(c.buf)
	c.buf = c.buf[:0]
}
