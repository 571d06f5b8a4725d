package arrow

import (
	"encoding/binary"
	"math"
	"math/big"
	"slices"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/columnar"
)

// check compares the lengths of the buffers with the number of values.
func (a *vector) check() error {
	need, more := 0, 0
	f := a.f
	switch {
	case a.n == 0:
	case f.dictionary != nil:
		need = a.n * f.dictionary.width
	case f.kind == kindBool:
		need = (a.n + 7) / 8
	case f.kind == kindBinary, f.kind == kindUtf8, f.kind == kindList, f.kind == kindMap:
		need = 4 * (a.n + 1)
	case f.kind == kindLargeBinary, f.kind == kindLargeUtf8, f.kind == kindLargeList:
		need = 8 * (a.n + 1)
	case f.kind == kindListView:
		need, more = 4*a.n, 4*a.n
	case f.kind == kindLargeListView:
		need, more = 8*a.n, 8*a.n
	case f.isView():
		need = 16 * a.n
	case f.kind == kindFixedList:
		if child := a.children[0]; f.width > 0 && child != nil && child.n/f.width < a.n {
			return fault.Userf("the field %s has %d lists of %d in %d values (damaged)", f, a.n, f.width, child.n)
		}
	case f.kind == kindStruct:
		for _, c := range a.children {
			if c != nil && c.n < a.n {
				return fault.Userf("the field %s has %d values in a struct of %d (damaged)", c.f, c.n, a.n)
			}
		}
	case f.kind != kindNull:
		if f.width > 0 && a.n > math.MaxInt/f.width {
			return fault.Userf("the field %s claims %d values (damaged)", f, a.n)
		}
		need = a.n * f.width
	}
	if len(a.values) < need || len(a.more) < more || a.valid != nil && len(a.valid) < (a.n+7)/8 {
		return fault.Userf("the field %s has %d and %d bytes for %d values (truncated or damaged)", f, len(a.values), len(a.more), a.n)
	}
	return nil
}

func (a *vector) isNull(i int) bool {
	return a.valid != nil && a.valid[i>>3]>>(i&7)&1 == 0 || a.f.kind == kindNull && a.f.dictionary == nil
}

// span returns the range of list i, or of the bytes of value i, in what holds
// limit of them.
func (a *vector) span(i, limit int) (from, to int, err error) {
	switch a.f.kind {
	case kindFixedList:
		from, to = i*a.f.width, (i+1)*a.f.width
	case kindLargeBinary, kindLargeUtf8, kindLargeList:
		from, to = int64At(a.values, i), int64At(a.values, i+1)
	case kindListView:
		from = int32At(a.values, i)
		to = from + int32At(a.more, i)
	case kindLargeListView:
		from = int64At(a.values, i)
		to = from + int64At(a.more, i)
	default:
		from, to = int32At(a.values, i), int32At(a.values, i+1)
	}
	if from < 0 || to < from || to > limit {
		err = fault.Userf("value %d of the field %s is %d to %d of %d (damaged)", i, a.f, from, to, limit)
	}
	return from, to, err
}

func int32At(b []byte, i int) int { return int(int32(binary.LittleEndian.Uint32(b[4*i:]))) }
func int64At(b []byte, i int) int { return int(binary.LittleEndian.Uint64(b[8*i:])) }

// column reads one wanted column of a batch. Its values borrow from the
// batch, and from scratch that the next row reuses.
type column struct {
	name    string
	path    columnPath
	objects *columnar.Objects // of structs and maps; it counts the elements of all lists
	list    []format.Value
	tokens  []int32
}

// row reads the value of row i of the batch.
func (c *column) row(batch *vector, i int) (v format.Value, bad, err error) {
	c.list, c.tokens = c.list[:0], c.tokens[:0]
	c.objects.Reset()
	if v, bad, err = c.value(batch, i, 0); c.path.leaf.isObject() && bad == nil && err == nil {
		c.objects.Place(&v)
	}
	return v, bad, err
}

// value reads value i of a, from which the path goes on at step depth. bad is
// what is wrong with a value that no Kind can hold.
func (c *column) value(a *vector, i, depth int) (v format.Value, bad, err error) {
	for {
		if a.isNull(i) {
			return format.Value{}, nil, nil
		}
		if a.f.dictionary != nil {
			if a, i, err = a.lookUp(i); err != nil {
				return v, nil, err
			}
			continue // the entry may be null
		}
		if depth == len(c.path.steps) {
			if c.path.leaf.isObject() {
				return c.object(a, i)
			}
			return a.leaf(i)
		}
		step := c.path.steps[depth]
		if step == eachElement {
			break
		}
		a, depth = a.children[step], depth+1
	}
	child := a.children[0]
	from, to, err := a.span(i, child.n)
	if err != nil {
		return v, nil, err
	}
	if c.path.tokens && depth == len(c.path.steps)-1 {
		return c.tokenList(child, from, to)
	}
	start := len(c.list)
	if bad := c.objects.Take(to - from); bad != nil {
		return v, bad, nil
	}
	c.list = slices.Grow(c.list, to-from)[:start+to-from]
	list := c.list[start : start+to-from : start+to-from]
	for j := range list {
		if list[j], bad, err = c.value(child, from+j, depth+1); bad != nil || err != nil {
			return v, bad, err
		}
	}
	return format.Value{Kind: format.List, List: list}, nil, nil
}

// lookUp returns the dictionary entry that index i refers to.
func (a *vector) lookUp(i int) (*vector, int, error) {
	index := a.integer(i, a.f.dictionary.width, a.f.dictionary.signed)
	left := uint64(index)
	for _, part := range a.dict {
		if left < uint64(part.n) {
			return part, int(left), nil
		}
		left -= uint64(part.n)
	}
	return nil, 0, fault.Userf("value %d of the field %s refers to entry %d, which its dictionary lacks (damaged)", i, a.f, index)
}

// integer reads value i of width bytes. An unsigned one above 2^63-1 is negative.
func (a *vector) integer(i, width int, signed bool) int64 {
	switch width {
	case 1:
		if signed {
			return int64(int8(a.values[i]))
		}
		return int64(a.values[i])
	case 2:
		x := binary.LittleEndian.Uint16(a.values[2*i:])
		if signed {
			return int64(int16(x))
		}
		return int64(x)
	case 4:
		if signed {
			return int64(int32At(a.values, i))
		}
		return int64(uint32(int32At(a.values, i)))
	}
	return int64(int64At(a.values, i))
}

// tokenList reads integers [from, to) of a as token ids.
func (c *column) tokenList(a *vector, from, to int) (v format.Value, bad, err error) {
	start := len(c.tokens)
	if a.valid == nil && a.f.dictionary == nil && a.f.width == 4 && a.f.signed {
		c.tokens = slices.Grow(c.tokens, to-from)[:start+to-from]
		for i := range to - from {
			c.tokens[start+i] = int32(binary.LittleEndian.Uint32(a.values[4*(from+i):]))
		}
		return format.Value{Kind: format.Tokens, Tokens: c.tokens[start:len(c.tokens):len(c.tokens)]}, nil, nil
	}
	for i := from; i < to; i++ {
		x, bad, err := c.value(a, i, len(c.path.steps))
		switch {
		case err != nil || bad != nil:
			return v, bad, err
		case x.Kind != format.Int:
			return v, columnar.ErrNullToken, nil
		case x.Int != int64(int32(x.Int)):
			return v, columnar.TokenRange(x.Int), nil
		}
		c.tokens = append(c.tokens, int32(x.Int))
	}
	return format.Value{Kind: format.Tokens, Tokens: c.tokens[start:len(c.tokens):len(c.tokens)]}, nil, nil
}

// leaf reads value i, which is not null, of a field without children.
func (a *vector) leaf(i int) (v format.Value, bad, err error) {
	f := a.f
	switch f.kind {
	case kindInt, kindDate, kindTime, kindTimestamp, kindDuration:
		x := a.integer(i, f.width, f.signed)
		if x < 0 && !f.signed {
			bad = fault.Userf("the unsigned value %d is beyond %d", uint64(x), math.MaxInt64)
		}
		return format.Value{Kind: format.Int, Int: x}, bad, nil
	case kindFloat:
		return format.Value{Kind: format.Float, Float: a.float(i)}, nil, nil
	case kindBool:
		return format.Value{Kind: format.Bool, Int: int64(a.values[i>>3] >> (i & 7) & 1)}, nil, nil
	case kindDecimal:
		return a.decimal(i)
	case kindFixedBinary:
		return format.Value{Kind: format.Bytes, Bytes: a.values[i*f.width : (i+1)*f.width : (i+1)*f.width]}, nil, nil
	}
	b, err := a.bytes(i)
	if err != nil {
		return v, nil, err
	}
	if f.kind == kindBinary || f.kind == kindLargeBinary || f.kind == kindBinaryView {
		return format.Value{Kind: format.Bytes, Bytes: b}, nil, nil
	}
	if !utf8.Valid(b) {
		return v, fault.Userf("byte %d of the text is not valid UTF-8", format.InvalidUTF8(b)), nil
	}
	return format.Value{Kind: format.String, Bytes: b}, nil, nil
}

func (a *vector) float(i int) float64 {
	switch a.f.width {
	case 2:
		return columnar.Float16(binary.LittleEndian.Uint16(a.values[2*i:]))
	case 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(a.values[4*i:])))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(a.values[8*i:]))
}

func (a *vector) decimal(i int) (v format.Value, bad, err error) {
	if a.f.scale > columnar.MaxDecimalScale || a.f.scale < -columnar.MaxDecimalScale {
		return v, fault.Userf("a decimal of scale %d is not supported (up to %d)", a.f.scale, columnar.MaxDecimalScale), nil
	}
	b := slices.Clone(a.values[i*a.f.width : (i+1)*a.f.width])
	slices.Reverse(b)
	x := columnar.BigEndian(b)
	if a.f.scale < 0 {
		x.Mul(x, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-a.f.scale)), nil))
	}
	return format.Value{Kind: format.String, Bytes: []byte(columnar.DecimalText(x, max(a.f.scale, 0)))}, nil, nil
}

// bytes returns the text or binary value i.
func (a *vector) bytes(i int) ([]byte, error) {
	if !a.f.isView() {
		from, to, err := a.span(i, len(a.more))
		if err != nil {
			return nil, err
		}
		return a.more[from:to:to], nil
	}
	// A view holds the length and up to 12 bytes, or else four bytes, the
	// number of a buffer and the offset in it.
	view := a.values[16*i : 16*i+16]
	n := int32At(view, 0)
	if n >= 0 && n <= 12 {
		return view[4 : 4+n : 4+n], nil
	}
	buffer, off := int32At(view, 2), int32At(view, 3)
	if n < 0 || buffer < 0 || buffer >= len(a.views) || off < 0 || off > len(a.views[buffer])-n {
		return nil, fault.Userf("value %d of the field %s is %d bytes at %d of buffer %d, which is not there (damaged)", i, a.f, n, off, buffer)
	}
	return a.views[buffer][off : off+n : off+n], nil
}
