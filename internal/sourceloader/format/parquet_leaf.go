package format

import (
	"encoding/binary"
	"math"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	pq "github.com/parquet-go/parquet-go/format"

	"github.com/millrace-data/millrace/internal/fault"
)

// errTokenRange is the error of a token id that is not a 32-bit integer.
func errTokenRange(token int64) error {
	return fault.Userf("the token id %d is not within 32 bits (%d to %d)", token, math.MinInt32, math.MaxInt32)
}

func (n *parquetNode) is32() bool { return n.physical == pq.Int32 }

// appendTokens appends the values [from, to) of the page as token ids.
func (n *parquetNode) appendTokens(dst []int32, page *parquetPage, from, to int) ([]int32, error) {
	v := page.values
	switch {
	case n.is32() && !n.isUnsigned() && page.index == nil:
		return append(dst, v.words32[from:to]...), nil
	case n.is32() && !n.isUnsigned():
		for _, i := range page.index[from:to] {
			dst = append(dst, v.words32[i])
		}
		return dst, nil
	case !n.isUnsigned() && page.index == nil:
		return narrowTokens(dst, v.words64[from:to])
	}
	for i := from; i < to; i++ {
		x, bad := n.valueAt(page, i)
		if bad != nil {
			return dst, bad
		}
		if x.Int != int64(int32(x.Int)) {
			return dst, errTokenRange(x.Int)
		}
		dst = append(dst, int32(x.Int))
	}
	return dst, nil
}

// narrowTokens appends 64-bit integers as token ids.
func narrowTokens(dst []int32, wide []int64) ([]int32, error) {
	from := len(dst)
	dst = slices.Grow(dst, len(wide))[:from+len(wide)]
	beyond := int64(0)
	for i, x := range wide {
		dst[from+i] = int32(x)
		beyond |= x ^ int64(int32(x))
	}
	if beyond == 0 {
		return dst, nil
	}
	i := slices.IndexFunc(wide, func(x int64) bool { return x != int64(int32(x)) })
	return dst[:from], errTokenRange(wide[i])
}

// valueAt returns value i of the page, which is not null. The error says what
// is wrong with a value that no Kind can hold.
func (n *parquetNode) valueAt(page *parquetPage, i int) (Value, error) {
	if page.index != nil {
		i = int(page.index[i])
	}
	v := page.values
	switch n.physical {
	case pq.Boolean:
		return Value{Kind: Bool, Int: int64(v.words32[i])}, nil
	case pq.Float:
		return Value{Kind: Float, Float: float64(math.Float32frombits(uint32(v.words32[i])))}, nil
	case pq.Double:
		return Value{Kind: Float, Float: math.Float64frombits(uint64(v.words64[i]))}, nil
	case pq.Int32:
		return n.integer(int64(v.words32[i]))
	case pq.Int64:
		return n.integer(v.words64[i])
	case pq.Int96:
		return int96(v.bytes(i))
	case pq.FixedLenByteArray:
		return n.fixed(v.bytes(i))
	}
	return n.byteArray(v.bytes(i))
}

func (n *parquetNode) integer(x int64) (Value, error) {
	switch {
	case n.isDecimal():
		return n.decimal(big.NewInt(x))
	case !n.isUnsigned():
	case n.is32():
		x = int64(uint32(x))
	case x < 0:
		return Value{}, fault.Userf("the unsigned value %d is beyond %d", uint64(x), math.MaxInt64)
	}
	return Value{Kind: Int, Int: x}, nil
}

// int96 reads a timestamp of Impala and old Spark, nanoseconds of the day and
// Julian day, as nanoseconds since 1970.
func int96(b []byte) (Value, error) {
	const unixDay, dayNanos = 2440588, 86400 * 1_000_000_000
	nanos, day := int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint32(b[8:]))
	if days := day - unixDay; nanos >= 0 && nanos < 2*dayNanos && days > -106751 && days < 106750 {
		return Value{Kind: Int, Int: days*dayNanos + nanos}, nil
	}
	return Value{}, fault.Userf("the INT96 timestamp of Julian day %d and %d ns is outside 1677 to 2262", day, nanos)
}

func (n *parquetNode) fixed(b []byte) (Value, error) {
	switch {
	case n.isDecimal():
		return n.decimal(bigEndian(b))
	case n.logical == logicalFloat16 && len(b) == 2:
		return Value{Kind: Float, Float: float16(binary.LittleEndian.Uint16(b))}, nil
	}
	return Value{Kind: Bytes, Bytes: b}, nil
}

func (n *parquetNode) byteArray(b []byte) (Value, error) {
	switch {
	case n.isDecimal():
		return n.decimal(bigEndian(b))
	case n.isText():
		if !utf8.Valid(b) {
			return Value{}, fault.Userf("byte %d of the text is not valid UTF-8", invalidUTF8(b))
		}
		return Value{Kind: String, Bytes: b}, nil
	case n.logical == 0 && n.converted < 0 && utf8.Valid(b):
		return Value{Kind: String, Bytes: b}, nil
	}
	return Value{Kind: Bytes, Bytes: b}, nil
}

// bigEndian reads a two's complement number.
func bigEndian(b []byte) *big.Int {
	x := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0] >= 0x80 {
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return x
}

// maxDecimalScale is beyond every precision in use (38 and 76 digits).
const maxDecimalScale = 1000

// decimal writes a decimal out, with all digits of its scale.
func (n *parquetNode) decimal(x *big.Int) (Value, error) {
	if n.scale < 0 || n.scale > maxDecimalScale {
		return Value{}, fault.Userf("a decimal of scale %d is not supported (0 to %d)", n.scale, maxDecimalScale)
	}
	return Value{Kind: String, Bytes: []byte(decimalText(x, n.scale))}, nil
}

func decimalText(x *big.Int, scale int) string {
	digits := new(big.Int).Abs(x).String()
	if more := scale + 1 - len(digits); more > 0 {
		digits = strings.Repeat("0", more) + digits
	}
	if scale > 0 {
		digits = digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
	}
	if x.Sign() < 0 {
		digits = "-" + digits
	}
	return digits
}

// float16 widens an IEEE 754 half.
func float16(bits uint16) float64 {
	sign, exp, frac := 1.0, int(bits>>10&31), float64(bits&1023)
	if bits>>15 != 0 {
		sign = -1
	}
	switch exp {
	case 0:
		return sign * math.Ldexp(frac, -24)
	case 31:
		if frac != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}
