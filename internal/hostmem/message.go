package hostmem

import (
	"encoding/binary"
	"fmt"
)

// Kind says what a message is.
type Kind uint32

// The messages of a line. The rank speaks first.
const (
	Hello   Kind = iota + 1 // up: the ticket, and a DeliverRequest
	Where                   // up: a Position
	NewRing                 // down, with a descriptor: a Place that is the whole memory
	InRing                  // down: a Place, and the table of the step whose body lies there
	InLine                  // down: a table of Number bytes, and the body
	Waits                   // down: a Waiting
	Refusal                 // down, the last: a gRPC code as Number, and the text
)

// headSize is the size of a message's head: kind, number, and the bytes that follow.
const headSize = 4 + 4 + 8

// Limits of what follows a head, but for bodies: nothing that a rank says has more than some hundred bytes,
// and no table of a step has been seen with a tenth of that.
const (
	mostUp   = 64 << 10
	mostDown = 64 << 20
)

var le = binary.LittleEndian

func appendHead(b []byte, kind Kind, number uint32, size int) []byte {
	return le.AppendUint64(le.AppendUint32(le.AppendUint32(b, uint32(kind)), number), uint64(size))
}

// Message is one that came. Payload is valid until the next one is received. Of InLine it is the table, and
// Body is how many bytes of a body follow, which have to be read first.
type Message struct {
	Kind    Kind
	Number  uint32
	Payload []byte
	Body    uint64
}

// Position says how far a rank is, as a DeliverRequest does, and which steps need no memory any more.
type Position struct {
	Acked, Until, Epoch, Waited uint64
	Freed                       []uint64
}

// Append appends the position's bytes to b.
func (p *Position) Append(b []byte) []byte {
	for _, n := range [...]uint64{p.Acked, p.Until, p.Epoch, p.Waited} {
		b = le.AppendUint64(b, n)
	}
	for _, n := range p.Freed {
		b = le.AppendUint64(b, n)
	}
	return b
}

// ReadPosition reads the bytes of a position.
func ReadPosition(b []byte) (p Position, err error) {
	if len(b) < 32 || len(b)%8 != 0 {
		return p, fmt.Errorf("a position has %d bytes", len(b))
	}
	p.Acked, p.Until, p.Epoch, p.Waited = le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])
	for b = b[32:]; len(b) > 0; b = b[8:] {
		p.Freed = append(p.Freed, le.Uint64(b))
	}
	return p, nil
}

// Place is a part of a ring.
type Place struct{ Ring, Offset, Size uint64 }

// placeSize is the size of a place in a message.
const placeSize = 24

// Append appends the place's bytes to b.
func (p Place) Append(b []byte) []byte {
	return le.AppendUint64(le.AppendUint64(le.AppendUint64(b, p.Ring), p.Offset), p.Size)
}

// ReadPlace reads a place, and returns what follows it.
func ReadPlace(b []byte) (p Place, rest []byte, err error) {
	if len(b) < placeSize {
		return p, nil, fmt.Errorf("a place has %d bytes", len(b))
	}
	return Place{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])}, b[placeSize:], nil
}
