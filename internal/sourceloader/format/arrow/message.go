package arrow

import (
	"encoding/binary"
	"io"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format/input"
)

// Members of the MessageHeader union, and versions of the metadata.
const (
	headerSchema     = 1
	headerDictionary = 2
	headerBatch      = 3

	version4 = 3
	version5 = 4
)

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

// messages are those of a file.
type messages struct {
	h    io.ReaderAt
	size int64 // of the file, in bytes
}

func (m *message) rows() int64 { return m.header.int64(0) }

// message reads the metadata of the message at an offset; nil at the end of a stream.
func (r messages) message(off int64) (*message, error) {
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
