package parquet

import (
	"encoding/binary"
	"math"

	pq "github.com/parquet-go/parquet-go/format"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format/compress"
)

// valueRun is a run of decoded values of one physical type. One of the
// four stores is in use: packed for numbers that stand one behind the other, as in the file, and
// are read where they are; words32 for other INT32 and FLOAT (as bits), and for BOOLEAN;
// words64 for other INT64 and DOUBLE (as bits), blob for byte arrays and INT96. Value
// i of a byte array is blob[offs[i]+gap:offs[i+1]]; with a fixed width, offs is
// unused.
type valueRun struct {
	n       int
	packed  []byte // part of the page, or of own
	words32 []int32
	words64 []int64
	blob    []byte
	offs    []int32
	gap     int32
	width   int
	own     []byte // memory of blob and packed where they are not part of the page
}

// word32 returns value i, of 32 bits.
func (v *valueRun) word32(i int) int32 {
	if v.packed != nil {
		return int32(binary.LittleEndian.Uint32(v.packed[4*i:]))
	}
	return v.words32[i]
}

// word64 returns value i, of 64 bits.
func (v *valueRun) word64(i int) int64 {
	if v.packed != nil {
		return int64(binary.LittleEndian.Uint64(v.packed[8*i:]))
	}
	return v.words64[i]
}

// bytes returns value i of a byte array; it is part of the page.
func (v *valueRun) bytes(i int) []byte {
	if v.width > 0 {
		return v.blob[i*v.width : (i+1)*v.width : (i+1)*v.width]
	}
	from, to := v.offs[i]+v.gap, v.offs[i+1]
	return v.blob[from:to:to]
}

// decode fills v with n values from src.
func (v *valueRun) decode(leaf *node, enc pq.Encoding, src []byte, n int) error {
	v.n, v.width, v.packed = n, 0, nil
	switch leaf.physical {
	case pq.Boolean:
		return v.decodeBools(enc, src)
	case pq.Int32, pq.Float:
		return v.decode32(enc, src)
	case pq.Int64, pq.Double:
		return v.decode64(enc, src)
	case pq.Int96:
		return v.decodeFixed(enc, src, 12)
	case pq.FixedLenByteArray:
		return v.decodeFixed(enc, src, leaf.width)
	case pq.ByteArray:
		return v.decodeBytes(enc, src)
	}
	return fault.Userf("the physical type %d is not known", leaf.physical)
}

func badEncoding(enc pq.Encoding, physical pq.Type) error {
	return fault.Userf("the encoding %s is not supported for %s", enc, physical)
}

func needBytes(src []byte, n, width int) error {
	if len(src) < n*width {
		return fault.Userf("the page holds %d bytes of values where %d belong (truncated or damaged)", len(src), n*width)
	}
	return nil
}

func (v *valueRun) decodeBools(enc pq.Encoding, src []byte) error {
	v.words32 = sizedInts(v.words32, v.n)
	switch enc {
	case pq.Plain:
		if len(src) < (v.n+7)/8 {
			return needBytes(src, (v.n+7)/8, 1)
		}
		unpackRun(v.words32, src, 1)
		return nil
	case pq.RLE:
		if v.n == 0 {
			return nil
		}
		runs, _, err := prefixed(src)
		if err != nil {
			return err
		}
		return decodeRuns(v.words32, runs, 1)
	}
	return badEncoding(enc, pq.Boolean)
}

func (v *valueRun) decode32(enc pq.Encoding, src []byte) error {
	if enc != pq.DeltaBinaryPacked {
		return v.decodePacked(enc, src, 4, pq.Int32)
	}
	v.words32 = sizedInts(v.words32, v.n)
	_, err := decodeDelta(src, v.n, func(i int, x int64) { v.words32[i] = int32(x) })
	return err
}

func (v *valueRun) decode64(enc pq.Encoding, src []byte) error {
	if enc != pq.DeltaBinaryPacked {
		return v.decodePacked(enc, src, 8, pq.Int64)
	}
	v.words64 = sizedInts(v.words64, v.n)
	_, err := decodeDelta(src, v.n, func(i int, x int64) { v.words64[i] = x })
	return err
}

// decodePacked finds numbers of a width in bytes, and leaves them as they are: a page is larger than the caches next to a
// core, and a row of it is not.
func (v *valueRun) decodePacked(enc pq.Encoding, src []byte, width int, physical pq.Type) error {
	switch enc {
	case pq.Plain:
		v.packed = src
		return needBytes(src, v.n, width)
	case pq.ByteStreamSplit:
		v.own = compress.Sized(v.own, width*v.n)
		v.packed = v.own
		return byteStreams(v.own, src, v.n, width)
	}
	return badEncoding(enc, physical)
}

func (v *valueRun) decodeFixed(enc pq.Encoding, src []byte, width int) error {
	if width <= 0 || width > math.MaxInt16 {
		return fault.Userf("a fixed length of %d bytes is not valid (1 to %d)", width, math.MaxInt16)
	}
	switch enc {
	case pq.Plain:
		v.width, v.blob = width, src
		return needBytes(src, v.n, width)
	case pq.ByteStreamSplit:
		v.width, v.own = width, compress.Sized(v.own, v.n*width)
		v.blob = v.own
		return byteStreams(v.own, src, v.n, width)
	case pq.DeltaByteArray:
		if err := v.decodeDeltaBytes(src); err != nil {
			return err
		}
		for i := range v.n {
			if n := len(v.bytes(i)); n != width {
				return fault.Userf("value %d of the page has %d bytes, the schema says %d", i, n, width)
			}
		}
		return nil
	}
	return badEncoding(enc, pq.FixedLenByteArray)
}

func (v *valueRun) decodeBytes(enc pq.Encoding, src []byte) error {
	switch enc {
	case pq.Plain:
		return v.decodePlainBytes(src)
	case pq.DeltaLengthByteArray:
		return v.decodeLengthBytes(src)
	case pq.DeltaByteArray:
		return v.decodeDeltaBytes(src)
	}
	return badEncoding(enc, pq.ByteArray)
}

// decodePlainBytes leaves the values where they are, each after its length.
func (v *valueRun) decodePlainBytes(src []byte) error {
	v.offs, v.gap, v.blob = sizedInts(v.offs, v.n+1), 4, src
	at := 0
	for i := range v.n {
		v.offs[i] = int32(at)
		if len(src)-at < 4 {
			return errValueShort(i)
		}
		size := int(binary.LittleEndian.Uint32(src[at:]))
		if size > len(src)-at-4 {
			return errValueShort(i)
		}
		at += 4 + size
	}
	v.offs[v.n] = int32(at)
	return nil
}

func errValueShort(i int) error {
	return fault.Userf("the page ends inside value %d (truncated or damaged)", i)
}

func (v *valueRun) decodeLengthBytes(src []byte) error {
	v.offs, v.gap = sizedInts(v.offs, v.n+1), 0
	used, total, err := v.decodeLengths(src, v.offs[1:])
	if err != nil {
		return err
	}
	if total > int64(len(src)-used) {
		return errValueShort(v.n)
	}
	v.offs[0] = 0
	for i := range v.n {
		v.offs[i+1] += v.offs[i]
	}
	v.blob = src[used:]
	return nil
}

// decodeLengths fills lengths, one per value, and sums them.
func (v *valueRun) decodeLengths(src []byte, lengths []int32) (used int, total int64, err error) {
	negative := false
	used, err = decodeDelta(src, v.n, func(i int, x int64) {
		lengths[i] = int32(x)
		total += int64(lengths[i])
		negative = negative || lengths[i] < 0
	})
	if err == nil && (negative || total > maxPageBytes) {
		err = fault.Userf("the page holds a negative length, or values of %d bytes (at most %d)", total, maxPageBytes)
	}
	return used, total, err
}

// decodeDeltaBytes rebuilds values that each share a prefix with the one
// before.
func (v *valueRun) decodeDeltaBytes(src []byte) error {
	v.offs, v.gap = sizedInts(v.offs, v.n+1), 0
	prefixes := make([]int32, v.n)
	used, shared, err := v.decodeLengths(src, prefixes)
	if err != nil {
		return err
	}
	src = src[used:]
	suffixes := make([]int32, v.n)
	used, rest, err := v.decodeLengths(src, suffixes)
	if err != nil {
		return err
	}
	src = src[used:]
	if rest > int64(len(src)) || shared+rest > maxPageBytes {
		return errValueShort(v.n)
	}
	v.own = compress.Sized(v.own, int(shared+rest))[:0]
	last := 0
	for i, p := range prefixes {
		at := len(v.own)
		if int(p) > at-last {
			return fault.Userf("value %d of the page shares %d bytes with one of %d (damaged)", i, p, at-last)
		}
		v.offs[i] = int32(at)
		v.own = append(v.own, v.own[last:last+int(p)]...)
		v.own = append(v.own, src[:suffixes[i]]...)
		src, last = src[suffixes[i]:], at
	}
	v.offs[v.n] = int32(len(v.own))
	v.blob = v.own
	return nil
}

// prefixed splits off the part of src that a four-byte length counts.
func prefixed(src []byte) (part, rest []byte, err error) {
	if len(src) < 4 || binary.LittleEndian.Uint32(src) > uint32(len(src)-4) {
		return nil, nil, errRunsShort
	}
	n := 4 + binary.LittleEndian.Uint32(src)
	return src[4:n], src[n:], nil
}

func sizedInts[T int32 | int64 | uint8](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
