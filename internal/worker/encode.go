package worker

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// The table at the front of a batch, in words of 8 bytes: see docs/bytes.md.
const (
	batchMagic = 0x3142524d // "MRB1"
	headWords  = 8          // magic, rows, nodes, origins, keys, bytes, 0, 0
	nodeWords  = 6          // length, nulls, validity, offsets, values, bytes of values
	alignment  = 64
)

// MaxBatch bounds a batch in memory, in bytes: offsets are 32 bits with sign.
const MaxBatch = 1 << 30

func aligned(n int) int { return (n + alignment - 1) &^ (alignment - 1) }

// key is what a row's chance is keyed by, besides what its batch has in common.
type key struct{ row, part int64 }

// span is a range of values of a column.
type span struct {
	column *format.Column
	lo, hi int
}

func (s span) kind(i int) format.Kind { return s.column.Kinds[i] &^ format.AbsentKind }

// misfit returns why value i of a column is none of a type; "" if it is.
func (t Type) misfit(c *format.Column, i int) string {
	kind := c.Kinds[i] &^ format.AbsentKind
	at, size := int(c.Numbers[i]), int(c.Sizes[i])
	switch {
	case kind == format.List && t.Kind == format.List:
		for e := at; e < at+size; e++ {
			if why := t.Of.misfit(c.Elements, e); why != "" {
				return fmt.Sprintf("element %d %s", e-at, why)
			}
		}
		return ""
	case kind == format.List && t.Kind == format.Tokens:
		return tokensMisfit(c.Elements, at, size)
	case kind == t.Kind,
		kind == format.Int && t.Kind == format.Float,
		kind == format.String && t.Kind == format.Bytes,
		kind == format.Bytes && t.Kind == format.String && utf8.Valid(c.Bytes[at:at+size]),
		kind == format.Tokens && t.Kind == format.List && (size == 0 || t.Of.Kind == format.Int || t.Of.Kind == format.Float),
		kind == format.Null && t.Nullable:
		return ""
	case c.Kinds[i]&format.AbsentKind != 0:
		return fmt.Sprintf("is missing, and the function wants %s: annotate it Optional, or filter such records", t)
	case kind == format.Null:
		return fmt.Sprintf("is null, and the function wants %s: annotate it Optional, or filter such records", t)
	}
	return fmt.Sprintf("is %s, and the function wants %s", kindName(kind), t)
}

func kindName(kind format.Kind) string {
	switch kind {
	case format.List:
		return "a list"
	case format.Bytes:
		return "bytes that are not UTF-8"
	}
	return Type{Kind: kind}.String()
}

func tokensMisfit(elements *format.Column, at, size int) string {
	for e := at; e < at+size; e++ {
		n := elements.Numbers[e]
		if elements.Kinds[e] != format.Int || n < math.MinInt32 || n > math.MaxInt32 {
			return fmt.Sprintf("has element %d that is not an integer of 32 bits, and the function wants tokens", e-at)
		}
	}
	return ""
}

// fits reports whether all values of a range are of the very kind of the type, which is
// what nearly all batches are.
func (t Type) fits(s span) bool {
	return t.Kind != format.List && count(s.column.Kinds[s.lo:s.hi], t.Kind) == s.hi-s.lo
}

// encoder lays columns out in memory. Values fit their types. Without memory it counts
// the bytes that they take.
type encoder struct {
	memory []byte
	at     int // of the next buffer
	node   int // of the next node, in bytes
}

// sizeOf is the bytes that rows of columns take.
func sizeOf(columns []format.Column, types []Type, lo, hi int, keyed bool) int {
	e := begin(nil, types)
	for i, t := range types {
		e.column(t, span{&columns[i], lo, hi})
	}
	if keyed {
		e.buffer(16 * (hi - lo))
	}
	return e.at
}

func begin(memory []byte, types []Type) *encoder {
	nodes := 0
	for _, t := range types {
		nodes += t.nodes()
	}
	e := &encoder{memory: memory, node: headWords * 8, at: aligned((headWords + nodes*nodeWords) * 8)}
	if memory != nil {
		clear(memory[:headWords*8])
		e.word(0, batchMagic)
		e.word(2, nodes)
	}
	return e
}

func (e *encoder) word(i, value int) {
	binary.LittleEndian.PutUint64(e.memory[i*8:], uint64(value))
}

// encode writes rows lo to hi of columns, and the keys of those rows if there are any.
// memory has at least sizeOf bytes.
func encode(memory []byte, columns []format.Column, types []Type, lo, hi int, keys []key) {
	e := begin(memory, types)
	for i, t := range types {
		e.column(t, span{&columns[i], lo, hi})
	}
	if keys != nil {
		at := e.buffer(16 * (hi - lo))
		e.word(4, at)
		for i, k := range keys[lo:hi] {
			binary.LittleEndian.PutUint64(memory[at+16*i:], uint64(k.row))
			binary.LittleEndian.PutUint64(memory[at+16*i+8:], uint64(k.part))
		}
	}
	e.word(1, hi-lo)
	e.word(5, e.at)
}

// buffer returns the place of a new buffer.
func (e *encoder) buffer(size int) int {
	at := e.at
	e.at += aligned(size)
	return at
}

// column writes the node of a column and its buffers.
func (e *encoder) column(t Type, s span) {
	node, words := e.node, [nodeWords]int{s.hi - s.lo}
	e.node += nodeWords * 8
	if t.Nullable {
		words[1], words[2] = e.validity(s)
	}
	switch t.Kind {
	case format.Int, format.Float:
		words[5] = 8 * words[0]
		words[4] = e.buffer(words[5])
		e.numbers(t, s, words[4])
	case format.Bool:
		words[5] = (words[0] + 7) / 8
		words[4] = e.bits(s, func(i int) bool { return s.column.Numbers[i] != 0 })
	case format.List:
		s = asLists(s)
		offsets, sum := e.offsets(s, 1)
		words[3] = offsets
		defer e.column(*t.Of, elementsOf(s, sum))
	case format.Tokens:
		words[3], words[5] = e.offsets(s, 4)
		words[4] = e.buffer(words[5])
		e.tokens(s, words[4])
	default:
		words[3], words[5] = e.offsets(s, 1)
		words[4] = e.buffer(words[5])
		e.bytes(s, words[4])
	}
	if e.memory != nil {
		for i, w := range words {
			e.word(node/8+i, w)
		}
	}
}

// validity writes which values are not null, if some are, and returns the number of nulls.
func (e *encoder) validity(s span) (nulls, at int) {
	all := s.column.Kinds[s.lo:s.hi]
	nulls = count(all, format.Null) + count(all, format.Null|format.AbsentKind)
	if nulls == 0 {
		return 0, 0
	}
	return nulls, e.bits(s, func(i int) bool { return s.kind(i) != format.Null })
}

func (e *encoder) bits(s span, set func(int) bool) int {
	at := e.buffer((s.hi - s.lo + 7) / 8)
	if e.memory == nil {
		return at
	}
	clear(e.memory[at : at+(s.hi-s.lo+7)/8])
	for i := s.lo; i < s.hi; i++ {
		if set(i) {
			e.memory[at+(i-s.lo)/8] |= 1 << ((i - s.lo) % 8)
		}
	}
	return at
}

func (e *encoder) numbers(t Type, s span, at int) {
	if e.memory == nil {
		return
	}
	out, numbers, all := e.memory[at:at+8*(s.hi-s.lo)], s.column.Numbers[s.lo:s.hi], s.column.Kinds[s.lo:s.hi]
	copy(out, viewed(numbers))
	if t.Kind == format.Int || count(all, format.Int) == 0 {
		return
	}
	for i, n := range numbers {
		if all[i] == format.Int {
			binary.LittleEndian.PutUint64(out[8*i:], math.Float64bits(float64(n)))
		}
	}
}

// offsets writes where values begin, in elements, and returns the bytes of all of them.
func (e *encoder) offsets(s span, width int) (at, size int) {
	at = e.buffer(4 * (s.hi - s.lo + 1))
	sum := 0
	for i := s.lo; i < s.hi; i++ {
		if e.memory != nil {
			binary.LittleEndian.PutUint32(e.memory[at+4*(i-s.lo):], uint32(sum))
		}
		sum += int(s.column.Sizes[i])
	}
	if e.memory != nil {
		binary.LittleEndian.PutUint32(e.memory[at+4*(s.hi-s.lo):], uint32(sum))
	}
	return at, sum * width
}

func (e *encoder) bytes(s span, at int) {
	if e.memory == nil {
		return
	}
	s.runs(func(_ int, begin, end int) {
		at += copy(e.memory[at:], s.column.Bytes[begin:end])
	})
}

// runs calls part for the parts of a column's store that values take, in order: one for all
// values of a kind which stand one after the other, as nearly all do. first is the first value of them.
func (s span) runs(part func(first, begin, end int)) {
	first, begin, end := s.lo, 0, 0
	for i := s.lo; i < s.hi; i++ {
		at, size := int(s.column.Numbers[i]), int(s.column.Sizes[i])
		if size == 0 {
			continue
		}
		if at != end || s.column.Kinds[i] != s.column.Kinds[first] {
			if begin < end {
				part(first, begin, end)
			}
			first, begin = i, at
		}
		end = at + size
	}
	if begin < end {
		part(first, begin, end)
	}
}

func (e *encoder) tokens(s span, at int) {
	if e.memory == nil {
		return
	}
	s.runs(func(first, begin, end int) {
		if s.kind(first) == format.Tokens {
			at += copy(e.memory[at:], viewed(s.column.Tokens[begin:end]))
			return
		}
		for _, id := range s.column.Elements.Numbers[begin:end] {
			binary.LittleEndian.PutUint32(e.memory[at:], uint32(id))
			at += 4
		}
	})
}

// asLists returns a range whose values are lists or null, and whose elements stand one
// after the other: token ids become lists of ints, and what a join took apart is copied.
func asLists(s span) span {
	next, whole := int64(-1), true
	for i := s.lo; i < s.hi && whole; i++ {
		switch at := s.column.Numbers[i]; {
		case s.kind(i) == format.Tokens:
			whole = false
		case s.kind(i) == format.List:
			whole = next < 0 || next == at
			next = at + int64(s.column.Sizes[i])
		}
	}
	if whole {
		return s
	}
	c := &format.Column{Elements: &format.Column{}}
	for i := s.lo; i < s.hi; i++ {
		add(c, s.column, i)
		if k := len(c.Kinds) - 1; s.kind(i) == format.Tokens {
			c.Kinds[k], c.Numbers[k] = format.List, int64(len(c.Elements.Kinds))
			for _, id := range c.Tokens {
				c.Elements.Kinds, c.Elements.Sizes = append(c.Elements.Kinds, format.Int), append(c.Elements.Sizes, 0)
				c.Elements.Numbers = append(c.Elements.Numbers, int64(id))
			}
			c.Tokens = c.Tokens[:0]
		}
	}
	return span{c, 0, len(c.Kinds)}
}

// add appends a copy of value i of a column to another.
func add(to, from *format.Column, i int) {
	number, size := from.Numbers[i], from.Sizes[i]
	begin, end := number, number+int64(size)
	switch from.Kinds[i] {
	case format.String, format.Bytes:
		number = int64(len(to.Bytes))
		to.Bytes = append(to.Bytes, from.Bytes[begin:end]...)
	case format.Tokens:
		number = int64(len(to.Tokens))
		to.Tokens = append(to.Tokens, from.Tokens[begin:end]...)
	case format.List:
		if to.Elements == nil {
			to.Elements = &format.Column{}
		}
		number = int64(len(to.Elements.Kinds))
		for e := begin; e < end; e++ {
			add(to.Elements, from.Elements, int(e))
		}
	}
	to.Kinds, to.Numbers, to.Sizes = append(to.Kinds, from.Kinds[i]), append(to.Numbers, number), append(to.Sizes, size)
}

// elementsOf is the range of the elements of lists, which stand one after the other.
func elementsOf(s span, count int) span {
	for i := s.lo; i < s.hi; i++ {
		if s.kind(i) == format.List {
			begin := int(s.column.Numbers[i])
			return span{s.column.Elements, begin, begin + count}
		}
	}
	return span{&format.Column{}, 0, 0}
}
