package parquet

import (
	"encoding/binary"

	"github.com/millrace-data/millrace/internal/fault"
)

// Types of the Thrift compact protocol, in which Parquet writes its metadata.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
	thriftUUID   = 13
)

// maxThriftDepth bounds nesting, so that hostile metadata cannot exhaust the
// stack; Parquet's own structures nest 8 deep.
const maxThriftDepth = 32

// errThriftShort reports that the bytes end inside a value. A page header is
// decoded from a guessed number of bytes, so its reader asks for more on it.
var errThriftShort = fault.Userf("the metadata ends too early (truncated or damaged)")

// thriftReader decodes the compact protocol from memory. It allocates nothing
// and keeps the first error; after an error all methods return zero values. It
// reads field by field instead of filling generated structs: the footer of a
// file with many row groups is then walked, not built, and no list length that
// a damaged file claims is ever allocated.
type thriftReader struct {
	buf   []byte
	pos   int
	depth int
	err   error
}

func (t *thriftReader) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

func (t *thriftReader) byte() byte {
	if t.err != nil || t.pos >= len(t.buf) {
		t.fail(errThriftShort)
		return 0
	}
	t.pos++
	return t.buf[t.pos-1]
}

func (t *thriftReader) uvarint() uint64 {
	if t.err != nil {
		return 0
	}
	v, n := binary.Uvarint(t.buf[t.pos:])
	switch {
	case n == 0:
		t.fail(errThriftShort)
	case n < 0:
		t.fail(fault.Userf("the metadata holds a number of more than 64 bits (damaged)"))
	default:
		t.pos += n
	}
	return v
}

// int reads an integer field of type typ.
func (t *thriftReader) int(typ byte) int64 {
	switch typ {
	case thriftByte:
		return int64(int8(t.byte()))
	case thriftI16, thriftI32, thriftI64:
		u := t.uvarint()
		return int64(u>>1) ^ -int64(u&1)
	}
	t.mismatch(typ, "an integer")
	return 0
}

// bool reads a boolean field, whose value is its type.
func (t *thriftReader) bool(typ byte) bool {
	if typ != thriftTrue && typ != thriftFalse {
		t.mismatch(typ, "a boolean")
	}
	return typ == thriftTrue
}

// bytes reads a string field. The result is part of the input.
func (t *thriftReader) bytes(typ byte) []byte {
	if typ != thriftBinary {
		t.mismatch(typ, "a string")
		return nil
	}
	return t.take(t.uvarint())
}

func (t *thriftReader) take(n uint64) []byte {
	if t.err != nil || n > uint64(len(t.buf)-t.pos) {
		t.fail(errThriftShort)
		return nil
	}
	t.pos += int(n)
	return t.buf[t.pos-int(n) : t.pos]
}

// list reads a list field: it calls elem with the type of each element, which
// must read or skip it, and returns their number.
func (t *thriftReader) list(typ byte, elem func(i int, typ byte)) int {
	if typ != thriftList && typ != thriftSet {
		t.mismatch(typ, "a list")
		return 0
	}
	if !t.enter() {
		return 0
	}
	head := t.byte()
	n := uint64(head >> 4)
	if n == 15 {
		n = t.uvarint()
	}
	// Each element takes a byte at least.
	if n > uint64(len(t.buf)-t.pos) {
		t.fail(errThriftShort)
	}
	for i := 0; i < int(n) && t.err == nil; i++ {
		elem(i, head&15)
	}
	t.depth--
	return int(n)
}

// fields reads a struct: it calls field with the number and type of each one,
// which must read or skip it.
func (t *thriftReader) fields(typ byte, field func(id int, typ byte)) {
	if typ != thriftStruct {
		t.mismatch(typ, "a struct")
		return
	}
	if !t.enter() {
		return
	}
	id := 0
	for t.err == nil {
		head := t.byte()
		if head == 0 {
			break
		}
		if delta := int(head >> 4); delta > 0 {
			id += delta
		} else {
			id = int(t.int(thriftI16))
		}
		field(id, head&15)
	}
	t.depth--
}

// skip passes over a value of type typ. elem says that it is an element of a
// list, where a boolean takes a byte.
func (t *thriftReader) skip(typ byte, elem bool) {
	switch typ {
	case thriftTrue, thriftFalse:
		if elem {
			t.byte()
		}
	case thriftByte:
		t.byte()
	case thriftI16, thriftI32, thriftI64:
		t.uvarint()
	case thriftDouble:
		t.take(8)
	case thriftUUID:
		t.take(16)
	case thriftBinary:
		t.bytes(typ)
	case thriftList, thriftSet:
		t.list(typ, func(_ int, typ byte) { t.skip(typ, true) })
	case thriftMap:
		t.skipMap()
	case thriftStruct:
		t.fields(typ, func(_ int, typ byte) { t.skip(typ, false) })
	default:
		t.fail(fault.Userf("the metadata holds a value of unknown type %d (damaged)", typ))
	}
}

func (t *thriftReader) skipMap() {
	n := t.uvarint()
	if n == 0 || !t.enter() {
		return
	}
	types := t.byte()
	for ; n > 0 && t.err == nil; n-- {
		t.skip(types>>4, true)
		t.skip(types&15, true)
	}
	t.depth--
}

func (t *thriftReader) enter() bool {
	if t.depth++; t.depth > maxThriftDepth {
		t.fail(fault.Userf("the metadata nests more than %d deep (damaged)", maxThriftDepth))
	}
	return t.err == nil
}

func (t *thriftReader) mismatch(typ byte, want string) {
	t.fail(fault.Userf("the metadata holds a value of type %d where %s belongs (damaged)", typ, want))
}
