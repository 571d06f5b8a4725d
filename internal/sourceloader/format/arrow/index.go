package arrow

import (
	"encoding/binary"
	"io"
	"slices"
	"sort"
	"sync"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format/columnar"
	"github.com/millrace-data/millrace/internal/sourceloader/format/input"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

const fileMagic = "ARROW1"

// index is what is known of a file's messages: the schema, and where batches and dictionaries are. It
// goes as far as batches were asked for, and is safe for concurrent use.
type index struct {
	root        *field
	schemaBytes int64       // memory of root
	footer      *blockLists // nil: the file is a stream
	batches     int         // that the footer lists

	mu           sync.Mutex // guards the fields below, and no read
	marks        columnar.Marks
	next         cursor
	dictionaries []dictionaryPlace // by rising offset in a stream; of a file all, once they are wanted
	listed       bool              // the dictionaries of a file are known
}

// blockLists is where the footer of a file lists messages.
type blockLists struct {
	batches, dictionaries int64 // offsets in the file
	dictionaryCount       int
}

// cursor is a place between two messages.
type cursor struct {
	batch int   // the next one
	row   int64 // its first row
	off   int64 // of the next message of a stream; of a file, of the batch, 0 if the footer has to say it
}

// dictionaryPlace is where a dictionary is, or what is added to one.
type dictionaryPlace struct {
	off   int64
	id    int64
	delta bool
}

// found is what a read needs to know of a batch.
type found struct {
	firstRow     int64
	batch        message
	dictionaries []dictionaryPlace // that it may refer to, in order
}

// readIndex reads the schema, and of a file where its messages are listed.
func readIndex(h io.ReaderAt, obj store.Object) (*index, error) {
	var magic [8]byte
	if obj.Size < int64(len(magic)) {
		return nil, fault.Userf("the file has %d bytes, too few for an Arrow IPC file or stream (at least 8)", obj.Size)
	}
	if err := input.ReadFullAt(h, magic[:], 0); err != nil {
		return nil, err
	}
	r := messages{h, obj.Size}
	switch {
	case string(magic[:6]) == fileMagic:
		return r.readFooter()
	case string(magic[:4]) == "FEA1":
		return nil, fault.Userf("the file is in Feather version 1, which is not supported; write version 2, which is Arrow IPC")
	}
	m, err := r.message(0)
	switch {
	case err != nil:
		return nil, err
	case m == nil:
		return nil, fault.Userf("the file holds no schema: not an Arrow IPC file or stream, or a damaged one")
	case m.kind != headerSchema:
		return nil, errNoSchema
	}
	x := &index{next: cursor{off: m.body + m.size}}
	return x, x.readSchema(m.header)
}

func (x *index) readSchema(t flatTable) (err error) {
	if x.root, err = readSchema(t); err == nil {
		x.schemaBytes = x.root.bytes()
	}
	return err
}

var errNoSchema = fault.Userf("the stream does not start with one schema: not an Arrow IPC stream, or a damaged one")

const blockBytes = 24 // of a message in the footer: offset, length of the metadata, padding, length of the body

// readFooter reads that of the IPC file format.
func (r messages) readFooter() (*index, error) {
	const tail = 4 + len(fileMagic)
	var end [tail]byte
	if r.size < int64(8+tail) {
		return nil, fault.Userf("the file has %d bytes, too few for an Arrow IPC file: it is truncated", r.size)
	}
	if err := input.ReadFullAt(r.h, end[:], r.size-int64(tail)); err != nil {
		return nil, err
	}
	size := int64(int32(binary.LittleEndian.Uint32(end[:4])))
	if string(end[4:]) != fileMagic || size < 4 || size > r.size-int64(8+tail) || size > maxMetadata {
		return nil, fault.Userf("the file ends in %q instead of a footer of %d bytes and %s: it is truncated or damaged", end, size, fileMagic)
	}
	data, at := make([]byte, size), r.size-int64(tail)-size
	if err := input.ReadFullAt(r.h, data, at); err != nil {
		return nil, err
	}
	footer := flatRoot(data)
	schema, ok := footer.table(1)
	if !ok {
		return nil, fault.Userf("the footer has no schema (damaged)")
	}
	x := &index{}
	if err := x.readSchema(schema); err != nil {
		return nil, err
	}
	batches, n := footer.vector(3, blockBytes)
	dictionaries, dictionaryCount := footer.vector(2, blockBytes)
	x.footer, x.batches = &blockLists{at + int64(batches), at + int64(dictionaries), dictionaryCount}, n
	return x, footer.b.err()
}

// find finds a batch. It reads the metadata of messages from the last place before it that is known.
func (x *index) find(r messages, wanted int) (*found, error) {
	x.mu.Lock()
	at := x.next
	if wanted < at.batch {
		first, mark := x.marks.Near(wanted)
		at = cursor{first, mark.Row, mark.At}
	}
	x.mu.Unlock()
	if x.footer != nil {
		return x.findInFile(r, at, wanted)
	}
	f, batches, err := x.walk(r, at, wanted)
	if err == nil && f == nil {
		err = noBatch(wanted, batches)
	}
	return f, err
}

func noBatch(wanted, batches int) error {
	return fault.Userf("there is no record batch %d: the file has %d", wanted, batches)
}

// count counts the batches.
func (x *index) count(r messages) (int, error) {
	if x.footer != nil {
		return x.batches, nil
	}
	_, n, err := x.walk(r, x.next, -1)
	return n, err
}

// walk reads the metadata of a stream's messages up to the wanted batch, or to the end, and says how many batches
// there are before that.
func (x *index) walk(r messages, at cursor, wanted int) (*found, int, error) {
	for {
		m, err := r.message(at.off)
		if err != nil || m == nil {
			return nil, at.batch, err
		}
		before := at
		at.off = m.body + m.size
		switch m.kind {
		case headerSchema:
			return nil, 0, errNoSchema
		case headerDictionary:
			if err := x.note(before, at, m); err != nil {
				return nil, 0, err
			}
		case headerBatch:
			if err := m.checkRows(); err != nil {
				return nil, 0, err
			}
			at.batch, at.row = at.batch+1, at.row+m.rows()
			if err := x.note(before, at, m); err != nil {
				return nil, 0, err
			}
			if before.batch == wanted {
				return &found{before.row, *m, x.dictionariesBefore(before.off)}, at.batch, nil
			}
		default:
			return nil, 0, fault.Userf("the stream holds a message of kind %d; only record batches are supported", m.kind)
		}
	}
}

// note takes note of a message at a place, behind which is another one. Of a batch that is known it makes sure that it
// still has as many rows.
func (x *index) note(at, behind cursor, m *message) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case at.batch < x.next.batch:
		next, mark := x.marks.Behind(at.batch, columnar.Mark{Row: x.next.row})
		if next == behind.batch && mark.Row != behind.row {
			return fault.Userf("record batch %d begins at row %d or %d: the file is damaged, or it changed", next, mark.Row, behind.row)
		}
	case x.footer == nil && at.off < x.next.off:
	case m.kind == headerDictionary:
		x.next = behind
		x.dictionaries = append(x.dictionaries, placeOf(at.off, m))
	default:
		x.next = behind
		x.marks.Add(columnar.Mark{At: at.off, Row: at.row})
	}
	return nil
}

func placeOf(off int64, m *message) dictionaryPlace {
	return dictionaryPlace{off: off, id: m.header.int64(0), delta: m.header.int8(2, 0) != 0}
}

func (m *message) checkRows() error {
	if rows := m.rows(); rows < 0 || rows > columnar.MaxRows {
		return fault.Userf("a record batch claims %d rows (damaged)", rows)
	}
	return m.header.b.err()
}

// dictionariesBefore are those of a stream before an offset.
func (x *index) dictionariesBefore(off int64) []dictionaryPlace {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := sort.Search(len(x.dictionaries), func(i int) bool { return x.dictionaries[i].off >= off })
	return x.dictionaries[:n:n]
}

// findInFile finds a batch of a file, by its footer.
func (x *index) findInFile(r messages, at cursor, wanted int) (*found, error) {
	if wanted >= x.batches {
		return nil, noBatch(wanted, x.batches)
	}
	list := blocks{messages: r, at: x.footer.batches, count: wanted + 1}
	for {
		var err error
		if at.off == 0 {
			if at.off, err = list.offset(at.batch); err != nil {
				return nil, err
			}
		}
		m, err := r.listed(at.off, headerBatch)
		if err == nil {
			err = m.checkRows()
		}
		if err != nil {
			return nil, err
		}
		behind := cursor{batch: at.batch + 1, row: at.row + m.rows()}
		if err := x.note(at, behind, m); err != nil {
			return nil, err
		}
		if at.batch == wanted {
			dictionaries, err := x.listDictionaries(r)
			return &found{at.row, *m, dictionaries}, err
		}
		at = behind
	}
}

// listDictionaries returns those of a file, which serve all batches.
func (x *index) listDictionaries(r messages) ([]dictionaryPlace, error) {
	x.mu.Lock()
	known, listed := x.dictionaries, x.listed
	x.mu.Unlock()
	if listed {
		return known, nil
	}
	list := blocks{messages: r, at: x.footer.dictionaries, count: x.footer.dictionaryCount}
	var all []dictionaryPlace
	for i := range list.count {
		off, err := list.offset(i)
		if err != nil {
			return nil, err
		}
		m, err := r.listed(off, headerDictionary)
		if err != nil {
			return nil, err
		}
		all = append(all, placeOf(off, m))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dictionaries, x.listed = all, true
	return all, nil
}

// listed reads a message that the footer says is at an offset.
func (r messages) listed(off int64, kind int8) (*message, error) {
	m, err := r.message(off)
	if err == nil && (m == nil || m.kind != kind) {
		err = fault.Userf("the footer says that a batch or dictionary is at offset %d, which holds something else (damaged)", off)
	}
	return m, err
}

// blocks is a list of messages in the footer, of which some are in memory.
type blocks struct {
	messages
	at    int64 // offset of the list in the file
	count int   // that are wanted
	first int   // in memory
	buf   []byte
}

// blocksAtOnce are read at a time: 24 KB.
const blocksAtOnce = 1 << 10

// offset says where message i is; i rises from call to call.
func (b *blocks) offset(i int) (int64, error) {
	if k := (i - b.first) * blockBytes; b.buf == nil || k >= len(b.buf) {
		b.first, b.buf = i, make([]byte, blockBytes*min(b.count-i, blocksAtOnce))
		if err := input.ReadFullAt(b.h, b.buf, b.at+blockBytes*int64(i)); err != nil {
			return 0, err
		}
	}
	return int64(binary.LittleEndian.Uint64(b.buf[(i-b.first)*blockBytes:])), nil
}

// bytes is the memory of the index, about.
func (x *index) bytes() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.marks.Bytes() + 24*int64(cap(x.dictionaries)) + x.schemaBytes
}

// bytes is the memory of a field and those below it, about.
func (f *field) bytes() int64 {
	n := int64(len(f.name)) + 128
	for _, c := range f.children {
		n += c.bytes()
	}
	return n
}

// ofDictionary are the places of the last whole dictionary of an id, and of what was added to it since.
func ofDictionary(places []dictionaryPlace, id int64) (parts []dictionaryPlace) {
	for _, p := range slices.Backward(places) {
		if p.id != id {
			continue
		}
		if parts = append(parts, p); !p.delta {
			break
		}
	}
	slices.Reverse(parts)
	return parts
}
