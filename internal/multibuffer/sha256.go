// Package multibuffer computes the SHA-256 of many messages at once: eight or sixteen of them side by side, each in a lane
// of the processor's wide registers, where one message alone has to do one operation after the other.
//
// It owns the dealing of messages to lanes, and the compression of a block in each of them. What it returns is
// FIPS 180-4 to the bit, as crypto/sha256 does, which it uses for few messages and on every other processor. It
// never keeps a message, and starts no goroutine.
//
// Source of the idea: Gopal and others, "Processing Multiple Buffers in Parallel to Increase Performance on Intel
// Architecture Processors", 2010.
package multibuffer

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// A Message is what is hashed: its parts, one after the other.
type Message [][]byte

// size returns the bytes of a message.
func (m Message) size() (n int) {
	for _, part := range m {
		n += len(part)
	}
	return n
}

// sum returns the SHA-256 of one message.
func sum(m Message) (d [sha256.Size]byte) {
	h := sha256.New()
	for _, part := range m {
		h.Write(part)
	}
	h.Sum(d[:0])
	return d
}

// Sums returns the SHA-256 of each message. It takes the least time a byte where messages are alike in size. The caller
// keeps the messages, which are only read.
func Sums(messages []Message) [][sha256.Size]byte {
	sums := make([][sha256.Size]byte, len(messages))
	if len(messages) < fewest {
		for i, m := range messages {
			sums[i] = sum(m)
		}
		return sums
	}
	lanes := width
	if len(messages) <= 8 {
		lanes = 8
	}
	inLanes(lanes, messages, sums)
	return sums
}

// none is a number of messages that is never reached: of processors without lanes.
const none = int(^uint(0) >> 1)

const (
	widest = 16   // the most messages side by side
	chunk  = 1024 // the most bytes of each at a time: of sixteen, a third of a first-level cache
)

// A lane is a message on its way through one lane of the registers.
type lane struct {
	message int     // its place among all
	parts   Message // its parts, behind them its end as the standard has it: memory that is used again
	rest    Message // what has not been read of parts
	blocks  int     // of it
	end     [2 * sha256.BlockSize]byte
}

// start has a lane read a message from its beginning.
func (l *lane) start(place int, m Message) {
	size := m.size()
	l.message, l.blocks = place, (size+1+8+sha256.BlockSize-1)/sha256.BlockSize
	end := l.end[:l.blocks*sha256.BlockSize-size]
	clear(end)
	end[0] = 0x80
	binary.BigEndian.PutUint64(end[len(end)-8:], uint64(size)*8)
	l.parts = append(append(l.parts[:0], m...), end)
	l.rest = l.parts
}

// read returns the next n bytes of a message, where they are, or brought together in room.
func (l *lane) read(n int, room []byte) *byte {
	l.blocks -= n / sha256.BlockSize
	for len(l.rest[0]) == 0 {
		l.rest = l.rest[1:]
	}
	if part := l.rest[0]; len(part) >= n {
		l.rest[0] = part[n:]
		return &part[0]
	}
	for to := room[:n]; len(to) > 0; {
		got := copy(to, l.rest[0])
		if to, l.rest[0] = to[got:], l.rest[0][got:]; len(l.rest[0]) == 0 {
			l.rest = l.rest[1:]
		}
	}
	return &room[0]
}

// machine is what the lanes compute with.
type machine struct {
	lanes []lane              // 8 or 16
	state [8 * widest]uint32  // of each word of the state that of each lane
	input [widest]*byte       // what each lane takes next; that of an idle one is any memory
	room  [widest][chunk]byte //
	lane  [widest]lane
}

// inLanes computes sums in 8 or 16 lanes, the longest messages first, so that lanes end together.
func inLanes(lanes int, messages []Message, sums [][sha256.Size]byte) {
	order, sizes := make([]int, len(messages)), make([]int, len(messages))
	for i, m := range messages {
		order[i], sizes[i] = i, m.size()
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sizes[b], sizes[a]) })
	var c machine
	c.lanes = c.lane[:lanes]
	for {
		blocks, busy := chunk/sha256.BlockSize, false
		for i := range c.lanes {
			l := &c.lanes[i]
			if l.blocks == 0 && len(order) > 0 {
				l.start(order[0], messages[order[0]])
				c.reset(i)
				order = order[1:]
			}
			if l.blocks > 0 {
				blocks, busy = min(blocks, l.blocks), true
			}
		}
		if !busy {
			return
		}
		c.compress(blocks, sums)
	}
}

// compress has each busy lane take its next blocks, and stores the sums of those that are through.
func (c *machine) compress(blocks int, sums [][sha256.Size]byte) {
	var busy [widest]bool
	for i := range c.lanes {
		c.input[i] = &c.room[i][0]
		if busy[i] = c.lanes[i].blocks > 0; busy[i] {
			c.input[i] = c.lanes[i].read(blocks*sha256.BlockSize, c.room[i][:])
		}
	}
	compress(len(c.lanes), &c.state, &c.input, blocks)
	for i := range c.lanes {
		if l := &c.lanes[i]; busy[i] && l.blocks == 0 {
			for word := range initial {
				binary.BigEndian.PutUint32(sums[l.message][4*word:], c.state[word*len(c.lanes)+i])
			}
		}
	}
}

// reset puts the first state of the standard in a lane.
func (c *machine) reset(lane int) {
	for word, value := range initial {
		c.state[word*len(c.lanes)+lane] = value
	}
}

// initial is the first state: the fractions of the square roots of the first 8 primes.
var initial = [8]uint32{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}

// constants are those of the rounds: the fractions of the cube roots of the first 64 primes.
var constants = [64]uint32{
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
}
