package batch

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"unsafe"
)

// Domains separate the digests of different kinds.
const (
	stepDomain = "millrace step"
	rootDomain = "millrace root"
)

// littleEndian reports whether this machine stores an int32 as the digest needs it.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// RowDigest returns the SHA-256 of a row's content: the number of segments and
// the length of each as uint32, then all tokens as int32; then, for each kept
// value, the document as uint32, the length of the column's name as uint32 and
// the name, the length of the value as uint64 and the value; then, for each image,
// the document, the place, the height and the width as uint32, and the SHA-256 of the
// encoded image; then, for each document with tokens without loss, 2^32-1, the document, the
// number of their bounds and the bounds, as uint32; all little-endian.
// Padding is not part of it, so a row has one digest in every output format
// and on every mesh.
func RowDigest(row Row) [32]byte {
	return sumOf(RowMessage(row))
}

// RowMessage returns what a row's digest is the SHA-256 of, in parts, for whoever hashes many rows
// at once. It borrows the row's tokens and values.
func RowMessage(row Row) [][]byte {
	return rowMessage(row, littleEndian)
}

// rowMessage borrows tokens if native is set, which only a little-endian machine may do; the other
// path works everywhere.
func rowMessage(row Row, native bool) [][]byte {
	m := make([][]byte, 0, 1+len(row.Segments)+2*len(row.Kept)+len(row.Images)+len(row.Masked))
	head := make([]byte, 0, 4*(1+len(row.Segments)))
	head = binary.LittleEndian.AppendUint32(head, uint32(len(row.Segments)))
	for _, segment := range row.Segments {
		head = binary.LittleEndian.AppendUint32(head, uint32(len(segment)))
	}
	m = append(m, head)
	for _, segment := range row.Segments {
		if native {
			m = append(m, bytesOf(segment))
		} else {
			m = append(m, appendTokens(nil, segment))
		}
	}
	for _, k := range row.Kept {
		named := appendNumbers(nil, k.Document, len(k.Column))
		named = append(named, k.Column...)
		m = append(m, binary.LittleEndian.AppendUint64(named, uint64(len(k.Data))), k.Data)
	}
	for i := range row.Images {
		image := &row.Images[i]
		m = append(m, append(appendNumbers(nil, image.Document, image.At, image.H, image.W), image.SHA[:]...))
	}
	for i, bounds := range row.Masked {
		if len(bounds) > 0 {
			m = append(m, appendTokens(appendNumbers(nil, -1, i, len(bounds)), bounds)) // -1 is 2^32-1 as uint32
		}
	}
	return m
}

func appendNumbers(b []byte, numbers ...int) []byte {
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return b
}

func appendTokens(b []byte, tokens []int32) []byte {
	b = slices.Grow(b, 4*len(tokens))
	for _, token := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(token))
	}
	return b
}

// bytesOf views the memory of tokens as bytes, in the machine's byte order.
func bytesOf(tokens []int32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(tokens))), 4*len(tokens))
}

// StepDigest returns the digest d_k of a step: SHA-256 over "millrace step",
// the step and the number of rows as little-endian uint64, and the rows'
// digests in the step's global row order, which the plan defines and the mesh
// does not change. Steps count from 0.
func StepDigest(step int64, rows [][32]byte) [32]byte {
	h := sha256.New()
	buf := make([]byte, 0, len(stepDomain)+16)
	buf = append(buf, stepDomain...)
	buf = binary.LittleEndian.AppendUint64(buf, uint64(step))
	buf = binary.LittleEndian.AppendUint64(buf, uint64(len(rows)))
	h.Write(buf)
	for i := range rows {
		h.Write(rows[i][:])
	}
	return sum(h)
}

// Chain returns D_k = SHA-256(D_{k-1} ‖ d_k): the digest of a run up to and
// with step k, from that of the run before it and the step's own.
func Chain(prev, step [32]byte) [32]byte {
	var both [64]byte
	copy(both[:32], prev[:])
	copy(both[32:], step[:])
	return sha256.Sum256(both[:])
}

// Root returns D_0, the start of a run's chain: SHA-256 over "millrace
// root", the digest of the spec's identity, and the digest
// of the manifest. Runs of other data or another spec never share a chain.
func Root(identity, manifest [32]byte) [32]byte {
	buf := make([]byte, 0, len(rootDomain)+64)
	buf = append(buf, rootDomain...)
	buf = append(buf, identity[:]...)
	buf = append(buf, manifest[:]...)
	return sha256.Sum256(buf)
}

// Combine returns the digest of a job's manifest: SHA-256 over the digests of
// the manifests of its sources, in the order of the job spec.
func Combine(manifests [][32]byte) [32]byte {
	h := sha256.New()
	for i := range manifests {
		h.Write(manifests[i][:])
	}
	return sum(h)
}

func sumOf(message [][]byte) [32]byte {
	h := sha256.New()
	for _, part := range message {
		h.Write(part)
	}
	return sum(h)
}

func sum(h hash.Hash) (d [32]byte) {
	h.Sum(d[:0])
	return d
}
