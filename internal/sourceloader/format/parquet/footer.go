package parquet

import (
	"encoding/binary"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"

	pq "github.com/parquet-go/parquet-go/format"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format/columnar"
	"github.com/millrace-data/millrace/internal/sourceloader/format/input"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// maxFooter bounds the memory of one call: 256 MiB is the footer of a
// file with some 2 million column chunks.
const maxFooter = 256 << 20

// index is what is kept of a file's metadata for the row groups that are opened next: the schema, and
// where row groups are in the footer. Their columns are not kept: a read takes those of its row group from the file.
// It is read-only once made.
type index struct {
	elements []element
	groups   columnar.Marks // by their offsets in the footer
	end      columnar.Mark  // of the row groups
	dataEnd  int64          // offset in the file where the footer starts
	short    bool           // the sizes of columns leave something out: see shortSizes
}

// footer is what a read needs of a file's metadata: the schema, and of
// one row group its columns.
type footer struct {
	elements []element
	firstRow int64 // row number in the file of the wanted group's first row
	rows     int64 // of the wanted row group
	columns  []columnChunk
	dataEnd  int64 // offset in the file where the footer starts
	short    bool  // the sizes of columns leave something out: see shortSizes
}

// element is one node of the schema, as written.
type element struct {
	leaf       bool
	physical   pq.Type
	width      int // of a fixed-length byte array, in bytes
	repetition pq.FieldRepetitionType
	name       string
	children   int
	converted  int // converted type, -1 if none
	logical    int // field number in the LogicalType union, 0 if none
	scale      int
	bits       int // of an annotated integer
	unsigned   bool
}

// columnChunk is the place of one column of one row group.
type columnChunk struct {
	present   bool // metadata is there and readable without a key
	external  bool
	encrypted bool
	physical  pq.Type
	codec     pq.CompressionCodec
	values    int64
	size      int64 // of all pages, compressed, in bytes
	data      int64 // offset of the first data page
	dict      int64 // offset of the dictionary page, or 0
}

// start is the offset of the first page.
func (c *columnChunk) start() int64 {
	if c.dict > 0 && c.dict < c.data {
		return c.dict
	}
	return c.data
}

// maxDictionaryHeader is more than the header of a dictionary page takes.
const maxDictionaryHeader = 100

// chunkEnd returns where the pages of a column end. Where sizes are short that is
// further on, but not in what comes next. What is too much is not read: a column ends
// with its last value.
func (f *footer) chunkEnd(start, size int64) int64 {
	end := start + size
	if !f.short {
		return end
	}
	limit := min(end+maxDictionaryHeader, f.dataEnd)
	for i := range f.columns {
		if next := f.columns[i].start(); next >= end {
			limit = min(limit, next)
		}
	}
	return limit
}

// oldWriter is how parquet-mr calls itself; the first ones gave no version.
var oldWriter = regexp.MustCompile(`^parquet-mr(?: version (\d+)\.(\d+)\.(\d+))?`)

// shortSizes says that a writer left the header of the dictionary's page out of the
// size of a column: parquet-mr before 1.2.9 (PARQUET-816).
func shortSizes(createdBy string) bool {
	m := oldWriter.FindStringSubmatch(createdBy)
	if m == nil {
		return false
	}
	var version [3]int
	for i, digits := range m[1:] {
		version[i], _ = strconv.Atoi(digits) // none is 0, and so is one of too many digits
	}
	return slices.Compare(version[:], []int{1, 2, 9}) < 0
}

// readIndex reads the footer, which it returns as well. It takes two ranged reads.
func readIndex(h io.ReaderAt, obj store.Object) (*index, []byte, error) {
	const tail = 8 // length of the footer, magic
	if obj.Size < tail+4 {
		return nil, nil, fault.Userf("the file has %d bytes, too few for a Parquet file (at least 12)", obj.Size)
	}
	var end [tail]byte
	if err := input.ReadFullAt(h, end[:], obj.Size-tail); err != nil {
		return nil, nil, err
	}
	size := int64(binary.LittleEndian.Uint32(end[:4]))
	switch magic := string(end[4:]); {
	case magic == "PARE":
		return nil, nil, fault.Userf("the file is encrypted; write it without encryption, keys are not supported")
	case magic != "PAR1":
		return nil, nil, fault.Userf("the file ends with %q, not with PAR1: not a Parquet file, or a truncated one", magic)
	case size > obj.Size-tail-4:
		return nil, nil, fault.Userf("the footer claims %d bytes in a file of %d: the file is damaged or truncated", size, obj.Size)
	case size > maxFooter:
		return nil, nil, fault.Userf("the footer has %d bytes, more than the limit of %d; write fewer row groups or columns", size, maxFooter)
	}
	buf := make([]byte, size)
	if err := input.ReadFullAt(h, buf, obj.Size-tail-size); err != nil {
		return nil, nil, err
	}
	x := &index{dataEnd: obj.Size - tail - size}
	if err := x.decode(buf); err != nil {
		return nil, nil, footerError(err)
	}
	return x, buf, nil
}

func footerError(err error) error { return fmt.Errorf("reading the footer: %w", err) }

func (x *index) decode(buf []byte) error {
	t := &thriftReader{buf: buf}
	t.fields(thriftStruct, func(id int, typ byte) {
		switch id {
		case 2:
			t.list(typ, func(_ int, typ byte) { x.elements = append(x.elements, readElement(t, typ)) })
		case 4:
			t.list(typ, func(i int, typ byte) {
				x.end.At = int64(t.pos)
				x.groups.Add(x.end)
				_, rows := readGroup(t, typ, i, false)
				x.end.Row += rows
			})
			x.end.At = int64(t.pos)
		case 6:
			x.short = shortSizes(string(t.bytes(typ)))
		default:
			t.skip(typ, false)
		}
	})
	return t.err
}

// group returns what a read of a row group needs. It takes one ranged read, none if it is given the footer.
func (x *index) group(h io.ReaderAt, number int, footerBytes []byte) (*footer, error) {
	if number >= x.groups.Len() {
		return nil, fault.Userf("there is no row group %d: the file has %d", number, x.groups.Len())
	}
	i, from := x.groups.Near(number)
	next, end := x.groups.Behind(number, x.end)
	var buf []byte
	if footerBytes != nil {
		buf = footerBytes[from.At:end.At]
	} else {
		buf = make([]byte, end.At-from.At)
		if err := input.ReadFullAt(h, buf, x.dataEnd+from.At); err != nil {
			return nil, err
		}
	}
	f := &footer{elements: x.elements, dataEnd: x.dataEnd, short: x.short}
	t := &thriftReader{buf: buf}
	row := from.Row
	for ; i < next; i++ {
		columns, rows := readGroup(t, thriftStruct, i, i == number)
		if i == number {
			f.columns, f.firstRow, f.rows = columns, row, rows
		}
		row += rows
	}
	if t.err == nil && row != end.Row {
		t.fail(fault.Userf("row group %d begins at row %d or %d: the file is damaged, or it changed", next, end.Row, row))
	}
	if t.err != nil {
		return nil, footerError(t.err)
	}
	return f, nil
}

// readGroup reads row group i: its rows, and its columns if they are wanted.
func readGroup(t *thriftReader, typ byte, i int, wanted bool) (columns []columnChunk, rows int64) {
	rows = -1
	t.fields(typ, func(id int, typ byte) {
		switch {
		case id == 1 && wanted:
			t.list(typ, func(_ int, typ byte) { columns = append(columns, readColumnChunk(t, typ)) })
		case id == 3:
			rows = t.int(typ)
		default:
			t.skip(typ, false)
		}
	})
	if t.err == nil && (rows < 0 || rows > columnar.MaxRows) {
		t.fail(fault.Userf("row group %d claims %d rows (damaged)", i, rows))
	}
	return columns, rows
}

func readElement(t *thriftReader, typ byte) element {
	e := element{converted: -1}
	t.fields(typ, func(id int, typ byte) {
		switch id {
		case 1:
			e.physical, e.leaf = pq.Type(t.int(typ)), true
		case 2:
			e.width = int(t.int(typ))
		case 3:
			e.repetition = readRepetition(t, typ)
		case 4:
			e.name = string(t.bytes(typ))
		case 5:
			e.children = int(t.int(typ))
		case 6:
			e.converted = int(t.int(typ))
		case 7:
			e.scale = int(t.int(typ))
		case 10:
			e.readLogical(t, typ)
		default:
			t.skip(typ, false)
		}
	})
	return e
}

// readRepetition reads the repetition_type of a schema's element. With has_nulls='infer' fastparquet writes a boolean in its
// place: true for optional and false for required, as its pages have it. Readers that skip such a field take every
// column for required, and levels for values.
func readRepetition(t *thriftReader, typ byte) pq.FieldRepetitionType {
	switch typ {
	case thriftTrue:
		return pq.Optional
	case thriftFalse:
		return pq.Required
	}
	return pq.FieldRepetitionType(t.int(typ))
}

// readLogical reads the LogicalType union; of its parameters it keeps the
// scale of a decimal and the width and sign of an integer.
func (e *element) readLogical(t *thriftReader, typ byte) {
	t.fields(typ, func(id int, typ byte) {
		e.logical = id
		t.fields(typ, func(param int, typ byte) {
			switch {
			case id == logicalDecimal && param == 1:
				e.scale = int(t.int(typ))
			case id == logicalInteger && param == 1:
				e.bits = int(t.int(typ))
			case id == logicalInteger && param == 2:
				e.unsigned = !t.bool(typ)
			default:
				t.skip(typ, false)
			}
		})
	})
}

func readColumnChunk(t *thriftReader, typ byte) columnChunk {
	var c columnChunk
	t.fields(typ, func(id int, typ byte) {
		switch id {
		case 1:
			c.external = len(t.bytes(typ)) > 0
		case 3:
			c.readMetadata(t, typ)
		case 8:
			c.encrypted = true
			t.skip(typ, false)
		default:
			t.skip(typ, false)
		}
	})
	return c
}

func (c *columnChunk) readMetadata(t *thriftReader, typ byte) {
	c.present = true
	t.fields(typ, func(id int, typ byte) {
		switch id {
		case 1:
			c.physical = pq.Type(t.int(typ))
		case 4:
			c.codec = pq.CompressionCodec(t.int(typ))
		case 5:
			c.values = t.int(typ)
		case 7:
			c.size = t.int(typ)
		case 9:
			c.data = t.int(typ)
		case 11:
			c.dict = t.int(typ)
		default:
			t.skip(typ, false)
		}
	})
}
