package arrow

import (
	"encoding/binary"
	"io"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format/columnar"
	"github.com/millrace-data/millrace/internal/sourceloader/format/input"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Members of the MessageHeader union, and versions of the metadata.
const (
	headerSchema     = 1
	headerDictionary = 2
	headerBatch      = 3

	version4 = 3
	version5 = 4
)

const fileMagic = "ARROW1"

// maxMetadata bounds one message's metadata: a million columns take less.
const maxMetadata = 256 << 20

// message is one encapsulated message: its metadata, and where its body is.
type message struct {
	version int16
	kind    int8
	header  flatTable
	body    int64 // offset in the file
	size    int64 // of the body, in bytes
}

// index is what a read needs of a file's messages: the schema and the
// place of a batch. Nothing of it is kept between calls.
type index struct {
	root         *field
	batches      int
	firstRow     int64 // row number in the file of the wanted batch's first row
	batch        message
	dictionaries []message // that the wanted batch may refer to, in order
}

// readIndex reads the metadata up to batch number wanted; with wanted < 0
// it counts the batches. Bodies are hopped over, not read.
func readIndex(h io.ReaderAt, obj store.Object, wanted int) (*index, error) {
	var magic [8]byte
	if obj.Size < int64(len(magic)) {
		return nil, fault.Userf("the file has %d bytes, too few for an Arrow IPC file or stream (at least 8)", obj.Size)
	}
	if err := input.ReadFullAt(h, magic[:], 0); err != nil {
		return nil, err
	}
	r := &indexReader{h: h, size: obj.Size, wanted: wanted}
	var err error
	switch {
	case string(magic[:6]) == fileMagic:
		err = r.readFile()
	case string(magic[:4]) == "FEA1":
		err = fault.Userf("the file is in Feather version 1, which is not supported; write version 2, which is Arrow IPC")
	default:
		err = r.readStream()
	}
	if err == nil && wanted >= r.index.batches {
		err = fault.Userf("there is no record batch %d: the file has %d", wanted, r.index.batches)
	}
	return &r.index, err
}

type indexReader struct {
	h      io.ReaderAt
	size   int64
	wanted int
	index  index
}

// readFile reads the IPC file format, by its footer.
func (r *indexReader) readFile() error {
	const tail = 4 + len(fileMagic)
	var end [tail]byte
	if r.size < int64(8+tail) {
		return fault.Userf("the file has %d bytes, too few for an Arrow IPC file: it is truncated", r.size)
	}
	if err := input.ReadFullAt(r.h, end[:], r.size-int64(tail)); err != nil {
		return err
	}
	size := int64(int32(binary.LittleEndian.Uint32(end[:4])))
	if string(end[4:]) != fileMagic || size < 4 || size > r.size-int64(8+tail) || size > maxMetadata {
		return fault.Userf("the file ends in %q instead of a footer of %d bytes and %s: it is truncated or damaged", end, size, fileMagic)
	}
	data := make([]byte, size)
	if err := input.ReadFullAt(r.h, data, r.size-int64(tail)-size); err != nil {
		return err
	}
	footer := flatRoot(data)
	schema, ok := footer.table(1)
	if !ok {
		return fault.Userf("the footer has no schema (damaged)")
	}
	var err error
	if r.index.root, err = readSchema(schema); err != nil {
		return err
	}
	return r.readBlocks(footer)
}

// readBlocks follows the footer's list of batches, and of dictionaries, which
// serve all batches.
func (r *indexReader) readBlocks(footer flatTable) error {
	const block = 24 // offset, length of the metadata, padding, length of the body
	start, n := footer.vector(3, block)
	if r.index.batches = n; r.wanted < 0 || r.wanted >= n {
		return footer.b.err()
	}
	for i := 0; i <= r.wanted; i++ {
		if err := r.visit(footer.i64At(start+i*block), headerBatch); err != nil {
			return err
		}
	}
	start, n = footer.vector(2, block)
	for i := range n {
		if err := r.visit(footer.i64At(start+i*block), headerDictionary); err != nil {
			return err
		}
	}
	return footer.b.err()
}

// visit reads the message of a block and takes note of it.
func (r *indexReader) visit(offset int64, kind int8) error {
	m, err := r.message(offset)
	if err != nil {
		return err
	}
	if m == nil || m.kind != kind {
		return fault.Userf("the footer says that a batch or dictionary is at offset %d, which holds something else (damaged)", offset)
	}
	if kind == headerDictionary {
		r.index.dictionaries = append(r.index.dictionaries, *m)
		return nil
	}
	return r.count(m)
}

// count adds the rows of batches before the wanted one, and keeps that.
func (r *indexReader) count(m *message) error {
	rows := m.header.int64(0)
	if rows < 0 || rows > columnar.MaxRows {
		return fault.Userf("a record batch claims %d rows (damaged)", rows)
	}
	r.index.firstRow += r.index.batch.rows()
	r.index.batch = *m
	return m.header.b.err()
}

func (m *message) rows() int64 { return m.header.int64(0) }

// readStream reads the IPC stream format, message by message.
func (r *indexReader) readStream() error {
	for at := int64(0); ; {
		m, err := r.message(at)
		if err != nil {
			return err
		}
		switch {
		case m == nil && r.index.root == nil:
			return fault.Userf("the file holds no schema: not an Arrow IPC file or stream, or a damaged one")
		case m == nil:
			return nil
		case (m.kind == headerSchema) != (r.index.root == nil):
			return fault.Userf("the stream does not start with one schema: not an Arrow IPC stream, or a damaged one")
		case m.kind == headerSchema:
			r.index.root, err = readSchema(m.header)
		case m.kind == headerDictionary:
			r.index.dictionaries = append(r.index.dictionaries, *m)
		case m.kind == headerBatch:
			if err = r.count(m); err == nil && r.index.batches == r.wanted {
				r.index.batches++
				return nil
			}
			r.index.batches++
		default:
			err = fault.Userf("the stream holds a message of kind %d; only record batches are supported", m.kind)
		}
		if err != nil {
			return err
		}
		at = m.body + m.size
	}
}

// message reads the metadata of the message at off; nil at the end of a stream.
func (r *indexReader) message(off int64) (*message, error) {
	if off == r.size {
		return nil, nil
	}
	var prefix [8]byte
	if off < 0 || off > r.size-4 {
		return nil, fault.Userf("a message starts at offset %d of %d bytes: the file is truncated or damaged", off, r.size)
	}
	n := min(int64(len(prefix)), r.size-off)
	if err := input.ReadFullAt(r.h, prefix[:n], off); err != nil {
		return nil, err
	}
	// Since version 0.15, a mark stands before the length.
	length, start := int64(int32(binary.LittleEndian.Uint32(prefix[:]))), off+4
	if length == -1 && n == 8 {
		length, start = int64(int32(binary.LittleEndian.Uint32(prefix[4:]))), off+8
	}
	switch {
	case length == 0 && start < r.size: // other readers would stop here and say nothing
		return nil, fault.Userf("%d bytes follow the end mark at offset %d: streams that were put together must be files of their own", r.size-start, off)
	case length == 0:
		return nil, nil
	case length < 8 || length > r.size-start || length > maxMetadata:
		return nil, fault.Userf("a message at offset %d claims %d bytes of metadata in a file of %d: not Arrow IPC data, or truncated or damaged", off, length, r.size)
	}
	data := make([]byte, length)
	if err := input.ReadFullAt(r.h, data, start); err != nil {
		return nil, err
	}
	t := flatRoot(data)
	m := &message{version: t.int16(0, 0), kind: t.int8(1, 0), size: t.int64(3), body: start + length}
	header, ok := t.table(2)
	m.header = header
	switch {
	case t.b.damaged || !ok:
		return nil, errFlat
	case m.version < version4 || m.version > version5:
		return nil, fault.Userf("the metadata is of version V%d; V4 and V5 are supported (Arrow 0.8 and later)", m.version+1)
	case m.size < 0 || m.size > r.size-m.body:
		return nil, fault.Userf("a message at offset %d claims %d bytes with %d left: the file is truncated or damaged", off, m.size, r.size-m.body)
	}
	return m, nil
}
