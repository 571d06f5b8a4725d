package arrow

import (
	"encoding/binary"

	"github.com/millrace-data/millrace/internal/fault"
)

// flatTable is a table of a FlatBuffers message, the form of Arrow's metadata.
// Every access is checked against the buffer; what is outside reads as the
// default and marks the message as damaged. The zero flatTable has no fields.
type flatTable struct {
	b   *flatBuffer
	pos int
}

type flatBuffer struct {
	data    []byte
	damaged bool
}

var errFlat = fault.Userf("the metadata refers to places outside itself (truncated or damaged)")

// err returns an error if any access so far was out of bounds.
func (b *flatBuffer) err() error {
	if b.damaged {
		return errFlat
	}
	return nil
}

// at returns n bytes at pos, or zeros.
func (b *flatBuffer) at(pos, n int) []byte {
	if pos < 0 || pos > len(b.data)-n {
		b.damaged = true
		return make([]byte, n)
	}
	return b.data[pos : pos+n]
}

func (b *flatBuffer) u32(pos int) int { return int(binary.LittleEndian.Uint32(b.at(pos, 4))) }

// flatRoot returns the root table of data.
func flatRoot(data []byte) flatTable {
	b := &flatBuffer{data: data}
	return flatTable{b, b.u32(0)}
}

// field returns the place of field id of size bytes, or -1 if it has its default.
func (t flatTable) field(id, size int) int {
	if t.b == nil {
		return -1
	}
	vtable := t.pos - int(int32(t.b.u32(t.pos)))
	length := int(binary.LittleEndian.Uint16(t.b.at(vtable, 2)))
	if 4+2*id+2 > length {
		return -1
	}
	off := int(binary.LittleEndian.Uint16(t.b.at(vtable+4+2*id, 2)))
	if off == 0 {
		return -1
	}
	t.b.at(t.pos+off, size)
	return t.pos + off
}

func (t flatTable) int8(id int, missing int8) int8 {
	if p := t.field(id, 1); p >= 0 {
		return int8(t.b.at(p, 1)[0])
	}
	return missing
}

func (t flatTable) int16(id int, missing int16) int16 {
	if p := t.field(id, 2); p >= 0 {
		return int16(binary.LittleEndian.Uint16(t.b.at(p, 2)))
	}
	return missing
}

func (t flatTable) int32(id int, missing int32) int32 {
	if p := t.field(id, 4); p >= 0 {
		return int32(t.b.u32(p))
	}
	return missing
}

func (t flatTable) int64(id int) int64 {
	if p := t.field(id, 8); p >= 0 {
		return int64(binary.LittleEndian.Uint64(t.b.at(p, 8)))
	}
	return 0
}

// table returns the table in field id.
func (t flatTable) table(id int) (flatTable, bool) {
	p := t.field(id, 4)
	if p < 0 {
		return flatTable{}, false
	}
	return flatTable{t.b, p + t.b.u32(p)}, true
}

func (t flatTable) string(id int) string {
	start, n := t.vector(id, 1)
	if n == 0 {
		return ""
	}
	return string(t.b.at(start, n))
}

// vector returns where the elements of the vector in field id start, and their
// number. Their bytes are within the buffer.
func (t flatTable) vector(id, size int) (start, n int) {
	p := t.field(id, 4)
	if p < 0 {
		return 0, 0
	}
	p += t.b.u32(p)
	n = t.b.u32(p)
	if n > (len(t.b.data)-p-4)/size {
		t.b.damaged = true
		return 0, 0
	}
	return p + 4, n
}

// tables returns element i of a vector of tables that starts at start.
func (t flatTable) element(start, i int) flatTable {
	p := start + 4*i
	return flatTable{t.b, p + t.b.u32(p)}
}

func (t flatTable) i64At(pos int) int64 { return int64(binary.LittleEndian.Uint64(t.b.at(pos, 8))) }
