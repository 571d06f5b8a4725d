package mirror

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/millrace-data/millrace/internal/checkpoint"
)

// segment is what an object holds: operations, and where they stand. A key frame is one
// too, whose operations make an empty log what it is before the slot.
type segment struct {
	magic  string
	slot   uint64
	epoch  uint64   // of its writer
	writer uint64   // a random number: no two writers make equal segments
	chain  [32]byte // of all segments before the slot
	job    [32]byte // the log's identity
	ops    []checkpoint.Op
}

// The kinds of objects; docs/bytes.md has their bytes.
const (
	segmentMagic = "mr-seg01"
	frameMagic   = "mr-key01"
	packMagic    = "mr-pck01"
	headBytes    = 8 + 3*8 + 2*32
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged is an object whose bytes are not what was written.
var errDamaged = errors.New("it is damaged")

// root is the chain before the first slot.
func root(job [32]byte) [32]byte { return sha256.Sum256(append([]byte("millrace log "), job[:]...)) }

// next is the chain after a segment: its bytes have the chain before it.
func next(data []byte) [32]byte { return sha256.Sum256(data) }

func (s *segment) encode() []byte {
	b := append(make([]byte, 0, headBytes+64), s.magic...)
	for _, n := range []uint64{s.slot, s.epoch, s.writer} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = append(append(b, s.chain[:]...), s.job[:]...)
	for _, op := range s.ops {
		b = appendOp(b, op)
	}
	return seal(b)
}

// seal ends an object with the checksum of what it has.
func seal(b []byte) []byte { return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)) }

// unseal checks that data is a whole object of a kind, and returns what follows the kind.
func unseal(data []byte, magic string) ([]byte, error) {
	if len(data) < len(magic)+4 || string(data[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: it does not begin with %s", errDamaged, magic)
	}
	body, check := data[:len(data)-4], data[len(data)-4:]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(check) {
		return nil, fmt.Errorf("%w: its checksum is another one", errDamaged)
	}
	return body[len(magic):], nil
}

// decode is the inverse of encode.
func decode(data []byte, magic string) (*segment, error) {
	b, err := unseal(data, magic)
	if err == nil && len(b) < headBytes-len(magic) {
		err = fmt.Errorf("%w: it has %d bytes", errDamaged, len(data))
	}
	if err != nil {
		return nil, err
	}
	s := &segment{magic: magic}
	for _, n := range []*uint64{&s.slot, &s.epoch, &s.writer} {
		*n = binary.BigEndian.Uint64(b)
		b = b[8:]
	}
	copy(s.chain[:], b)
	copy(s.job[:], b[32:])
	r := reader{b: b[64:]}
	for len(r.b) > 0 && r.err == nil {
		s.ops = append(s.ops, r.op())
	}
	return s, r.err
}

// The first byte of an operation.
const (
	opAppend     = 'r'
	opFramed     = 'f' // an append with a key frame
	opDigest     = 'd'
	opTruncate   = 't'
	opFork       = 'o' // a branch after another one than that which is written
	opTrim       = 'x'
	opInBranch   = 'b'
	opChange     = 'c'
	opFence      = 'e'
	opGeneration = 'g'
	opSince      = 's' // a generation with the join after which ranks entered that go on in it
)

func appendOp(b []byte, op checkpoint.Op) []byte {
	number := func(n uint64) { b = binary.AppendUvarint(b, n) }
	text := func(v []byte) { number(uint64(len(v))); b = append(b, v...) }
	switch op := op.(type) {
	case checkpoint.Append:
		kind := byte(opAppend)
		if op.Frame != nil {
			kind = opFramed
		}
		b = append(b, kind)
		number(uint64(op.Step))
		text(op.Record)
		if op.Frame != nil {
			text(op.Frame)
		}
	case checkpoint.SetDigest:
		b = append(b, opDigest)
		number(uint64(op.Step))
		b = append(b, op.Digest[:]...)
	case checkpoint.Truncate:
		b = append(b, opTruncate)
		number(uint64(max(op.From, 0)))
	case checkpoint.Fork:
		b = append(b, opFork)
		number(op.Number)
		number(op.Parent)
		number(uint64(max(op.From, 0)))
	case checkpoint.Trim:
		b = append(b, opTrim)
		number(uint64(max(op.Before, 0)))
	case checkpoint.InBranch:
		b = append(b, opInBranch)
		number(op.Number)
	case checkpoint.AddChange:
		b = append(b, opChange)
		text(op.Change)
	case checkpoint.Fence:
		b = append(b, opFence)
		number(op.Epoch)
	case checkpoint.SetGeneration:
		kind := byte(opGeneration)
		if op.Since > 0 {
			kind = opSince
		}
		b = append(b, kind)
		number(op.Number)
		number(uint64(op.Step))
		if op.Since > 0 {
			number(op.Since)
		}
	}
	return b
}

// reader takes operations apart. The first error stays.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail() {
	r.b, r.err = nil, fmt.Errorf("%w: what is in it ends too early, or is not known", errDamaged)
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) text() []byte { return r.bytes(r.number()) }

func (r *reader) op() checkpoint.Op {
	kind := r.b[0]
	r.b = r.b[1:]
	switch kind {
	case opAppend:
		return checkpoint.Append{Step: int64(r.number()), Record: r.text()}
	case opFramed:
		return checkpoint.Append{Step: int64(r.number()), Record: r.text(), Frame: r.text()}
	case opDigest:
		d := checkpoint.SetDigest{Step: int64(r.number())}
		copy(d.Digest[:], r.bytes(uint64(len(d.Digest))))
		return d
	case opTruncate:
		return checkpoint.Truncate{From: int64(r.number())}
	case opFork:
		return checkpoint.Fork{Number: r.number(), Parent: r.number(), From: int64(r.number())}
	case opTrim:
		return checkpoint.Trim{Before: int64(r.number())}
	case opInBranch:
		return checkpoint.InBranch{Number: r.number()}
	case opChange:
		return checkpoint.AddChange{Change: r.text()}
	case opFence:
		return checkpoint.Fence{Epoch: r.number()}
	case opGeneration:
		return checkpoint.SetGeneration{Generation: checkpoint.Generation{Number: r.number(), Step: int64(r.number())}}
	case opSince:
		return checkpoint.SetGeneration{Generation: checkpoint.Generation{Number: r.number(), Step: int64(r.number()), Since: r.number()}}
	}
	r.fail()
	return nil
}

// encodePack makes one object of the segments of adjacent slots, as they are.
func encodePack(segments [][]byte) []byte {
	b := []byte(packMagic)
	b = binary.AppendUvarint(b, uint64(len(segments)))
	for _, s := range segments {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return seal(b)
}

// decodePack is the inverse of encodePack.
func decodePack(data []byte) (segments [][]byte, err error) {
	b, err := unseal(data, packMagic)
	if err != nil {
		return nil, err
	}
	r := reader{b: b}
	for n := r.number(); n > 0 && r.err == nil; n-- {
		segments = append(segments, r.text())
	}
	if r.err == nil && len(r.b) > 0 {
		r.fail()
	}
	return segments, r.err
}
