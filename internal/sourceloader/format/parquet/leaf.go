package parquet

import (
	"encoding/binary"
	"math"
	"math/big"
	"slices"
	"unicode/utf8"

	pq "github.com/parquet-go/parquet-go/format"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/columnar"
)

func (n *node) is32() bool { return n.physical == pq.Int32 }

// appendTokens appends the values [from, to) of the page as token ids.
func (n *node) appendTokens(dst []int32, page *dataPage, from, to int) ([]int32, error) {
	v := page.values
	switch {
	case n.is32() && !n.isUnsigned() && page.index == nil:
		return v.append32(dst, from, to), nil
	case n.is32() && !n.isUnsigned():
		for _, i := range page.index[from:to] {
			dst = append(dst, v.word32(int(i)))
		}
		return dst, nil
	case !n.isUnsigned() && page.index == nil:
		return v.appendNarrowed(dst, from, to)
	}
	for i := from; i < to; i++ {
		x, bad := n.valueAt(page, i)
		if bad != nil {
			return dst, bad
		}
		if x.Int != int64(int32(x.Int)) {
			return dst, columnar.TokenRange(x.Int)
		}
		dst = append(dst, int32(x.Int))
	}
	return dst, nil
}

// append32 appends the values [from, to), of 32 bits.
func (v *valueRun) append32(dst []int32, from, to int) []int32 {
	if v.packed == nil {
		return append(dst, v.words32[from:to]...)
	}
	at := len(dst)
	dst = slices.Grow(dst, to-from)[:at+to-from]
	plain(dst[at:], v.packed[4*from:])
	return dst
}

// appendNarrowed appends the values [from, to), of 64 bits, as token ids.
func (v *valueRun) appendNarrowed(dst []int32, from, to int) ([]int32, error) {
	at := len(dst)
	dst = slices.Grow(dst, to-from)[:at+to-from]
	var beyond int64
	if v.packed != nil {
		beyond = narrowPacked(dst[at:], v.packed[8*from:])
	} else {
		beyond = narrow(dst[at:], v.words64[from:to])
	}
	if beyond == 0 {
		return dst, nil
	}
	for v.word64(from) == int64(int32(v.word64(from))) {
		from++
	}
	return dst[:at], columnar.TokenRange(v.word64(from))
}

// narrow fills dst with the numbers of src, and returns something else than 0 if one of them has more than 32 bits.
func narrow(dst []int32, src []int64) (beyond int64) {
	for i, x := range src[:len(dst)] {
		dst[i] = int32(x)
		beyond |= x ^ int64(int32(x))
	}
	return beyond
}

// narrowPacked is narrow, of numbers as they are in a file.
func narrowPacked(dst []int32, src []byte) (beyond int64) {
	src = src[:8*len(dst)]
	for i := range dst {
		x := int64(binary.LittleEndian.Uint64(src))
		dst[i], src = int32(x), src[8:]
		beyond |= x ^ int64(int32(x))
	}
	return beyond
}

// valueAt returns value i of the page, which is not null. The error says what
// is wrong with a value that no Kind can hold.
func (n *node) valueAt(page *dataPage, i int) (format.Value, error) {
	if page.index != nil {
		i = int(page.index[i])
	}
	v := page.values
	switch n.physical {
	case pq.Boolean:
		return format.Value{Kind: format.Bool, Int: int64(v.word32(i))}, nil
	case pq.Float:
		return format.Value{Kind: format.Float, Float: float64(math.Float32frombits(uint32(v.word32(i))))}, nil
	case pq.Double:
		return format.Value{Kind: format.Float, Float: math.Float64frombits(uint64(v.word64(i)))}, nil
	case pq.Int32:
		return n.integer(int64(v.word32(i)))
	case pq.Int64:
		return n.integer(v.word64(i))
	case pq.Int96:
		return int96(v.bytes(i))
	case pq.FixedLenByteArray:
		return n.fixed(v.bytes(i))
	}
	return n.byteArray(v.bytes(i))
}

func (n *node) integer(x int64) (format.Value, error) {
	switch {
	case n.isDecimal():
		return n.decimal(big.NewInt(x))
	case !n.isUnsigned():
	case n.is32():
		x = int64(uint32(x))
	case x < 0:
		return format.Value{}, fault.Userf("the unsigned value %d is beyond %d", uint64(x), math.MaxInt64)
	}
	return format.Value{Kind: format.Int, Int: x}, nil
}

// int96 reads a timestamp of Impala and old Spark, nanoseconds of the day and
// Julian day, as nanoseconds since 1970.
func int96(b []byte) (format.Value, error) {
	const unixDay, dayNanos = 2440588, 86400 * 1_000_000_000
	nanos, day := int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint32(b[8:]))
	if days := day - unixDay; nanos >= 0 && nanos < 2*dayNanos && days > -106751 && days < 106750 {
		return format.Value{Kind: format.Int, Int: days*dayNanos + nanos}, nil
	}
	return format.Value{}, fault.Userf("the INT96 timestamp of Julian day %d and %d ns is outside 1677 to 2262", day, nanos)
}

func (n *node) fixed(b []byte) (format.Value, error) {
	switch {
	case n.isDecimal():
		return n.decimal(columnar.BigEndian(b))
	case n.logical == logicalFloat16 && len(b) == 2:
		return format.Value{Kind: format.Float, Float: columnar.Float16(binary.LittleEndian.Uint16(b))}, nil
	}
	return format.Value{Kind: format.Bytes, Bytes: b}, nil
}

func (n *node) byteArray(b []byte) (format.Value, error) {
	switch {
	case n.isDecimal():
		return n.decimal(columnar.BigEndian(b))
	case n.isText():
		if !utf8.Valid(b) {
			return format.Value{}, fault.Userf("byte %d of the text is not valid UTF-8", format.InvalidUTF8(b))
		}
		return format.Value{Kind: format.String, Bytes: b}, nil
	case n.logical == 0 && n.converted < 0 && utf8.Valid(b):
		return format.Value{Kind: format.String, Bytes: b}, nil
	}
	return format.Value{Kind: format.Bytes, Bytes: b}, nil
}

// decimal writes a decimal out, with all digits of its scale.
func (n *node) decimal(x *big.Int) (format.Value, error) {
	if n.scale < 0 || n.scale > columnar.MaxDecimalScale {
		return format.Value{}, fault.Userf("a decimal of scale %d is not supported (0 to %d)", n.scale, columnar.MaxDecimalScale)
	}
	return format.Value{Kind: format.String, Bytes: []byte(columnar.DecimalText(x, n.scale))}, nil
}
