package spill

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math"
	"os"
	"slices"
	"sort"
)

// file is the part of *os.File in use.
type file interface {
	io.Writer
	io.ReaderAt
	io.Closer
}

// File is a sequence of records on a disk. It is safe for concurrent use; Close
// may be called at any time.
type File struct {
	disk    *Disk
	file    file
	groups  []group
	records uint32
	size    int64
}

// group is a run of whole records, each behind its length in 4 bytes, read and
// checked together.
type group struct {
	first uint32 // number of its first record
	sum   uint32 // CRC-32C of its bytes
	end   int64  // where it ends in the file
}

// A group is small enough that reading all of it costs little; its 16 bytes of memory
// are a thousandth of that. Longer records have their own groups. Groups are written
// many at a time.
const (
	groupBytes = 16 << 10
	writeBytes = 256 << 10
	indexBytes = 16 // a group in memory
	prefix     = 4  // length of a record
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrUnreadable reports that the records of a file are gone: it was closed, or the disk
// returned other bytes than were written, which is logged.
var ErrUnreadable = errors.New("data on the local disk cannot be read back")

// Write writes a file of records, each borrowed until the next one. Reserve was called
// before; the rest of the reservation is released, all of it on an error.
func (d *Disk) Write(reserved int64, records iter.Seq[[]byte]) (*File, error) {
	w, err := d.Create(reserved)
	if err != nil {
		return nil, err
	}
	for record := range records {
		if err := w.Add(record); err != nil {
			w.Discard()
			return nil, err
		}
	}
	return w.Finish()
}

// Create begins a file that is written record by record. Reserve was called before, as
// for Write. Finish or Discard ends it.
func (d *Disk) Create(reserved int64) (*Writer, error) {
	f, err := d.create(d.dir)
	if err != nil {
		d.free(reserved)
		d.fail(err)
		return nil, err
	}
	memory := d.buffer()
	return &Writer{file: &File{disk: d, file: f}, reserved: reserved, memory: memory, buf: (*memory)[:0]}, nil
}

// buffer is memory to read or write with.
func (d *Disk) buffer() *[]byte {
	if b, ok := d.memory.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

// Writer writes a file. It is not safe for concurrent use.
type Writer struct {
	file     *File
	reserved int64
	memory   *[]byte // lent by the disk
	buf      []byte  // the unwritten part of it
	start    int     // of the last group in it
}

// Len is the number of records so far: the number of the next one.
func (w *Writer) Len() uint32 { return w.file.records }

// Reserve reserves bytes for the next records; see Disk.Reserve.
func (w *Writer) Reserve(bytes int64) error {
	size := w.file.size + int64(len(w.buf)) + bytes
	if size <= w.reserved {
		return nil
	}
	if err := w.file.disk.more(w.reserved, size); err != nil {
		return err
	}
	w.reserved = size
	return nil
}

// Add writes a record, which is borrowed. After an error only Discard may be called.
func (w *Writer) Add(record []byte) error {
	f := w.file
	if uint64(len(record)) > math.MaxUint32 {
		return fmt.Errorf("a record of %d bytes is too long for the local disk", len(record))
	}
	if begun := len(w.buf) - w.start; begun > 0 && begun+prefix+len(record) > groupBytes {
		w.seal()
	}
	if len(w.buf) == w.start {
		f.groups = append(f.groups, group{first: f.records})
	}
	f.records++
	w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(len(record)))
	w.buf = append(w.buf, record...)
	if len(w.buf) >= writeBytes {
		return w.flush()
	}
	return nil
}

// seal ends a group.
func (w *Writer) seal() {
	g := &w.file.groups[len(w.file.groups)-1]
	g.sum = crc32.Checksum(w.buf[w.start:], castagnoli)
	g.end = w.file.size + int64(len(w.buf))
	w.start = len(w.buf)
}

// flush writes the buffer as whole groups.
func (w *Writer) flush() error {
	if len(w.buf) > w.start {
		w.seal()
	}
	size, d := w.file.size+int64(len(w.buf)), w.file.disk
	if size > w.reserved {
		if !d.resize(w.reserved, size) {
			return ErrFull
		}
		w.reserved = size
	}
	if _, err := w.file.file.Write(w.buf); err != nil {
		d.fail(err)
		return err
	}
	w.file.size, w.buf, w.start = size, w.buf[:0], 0
	return nil
}

// Finish ends the file, and releases the rest of its reservation; all of it on an
// error.
func (w *Writer) Finish() (*File, error) {
	if err := w.flush(); err != nil {
		w.Discard()
		return nil, err
	}
	w.giveBack()
	d := w.file.disk
	w.file.groups = slices.Clip(w.file.groups)
	d.resize(w.reserved, w.file.size)
	d.works()
	return w.file, nil
}

// Discard releases the file and its reservation.
func (w *Writer) Discard() {
	w.giveBack()
	w.file.file.Close() // an unlinked file leaves nothing behind
	w.file.disk.free(w.reserved)
}

// giveBack returns the writer's buffer.
func (w *Writer) giveBack() {
	*w.memory = w.buf
	w.file.disk.memory.Put(w.memory)
}

// Size returns the bytes of the file on disk.
func (f *File) Size() int64 { return f.size }

// Bytes returns the memory of the file's index.
func (f *File) Bytes() int64 { return indexBytes * int64(cap(f.groups)) }

// Close releases the file and its room. It is called once.
func (f *File) Close() {
	f.disk.free(f.size)
	f.file.Close() // its content is no longer needed
}

// Read calls visit with the records of the given numbers, in that order, and
// returns the first error of visit; a record is borrowed until visit returns.
// Rising numbers need the fewest reads. An error of the disk is ErrUnreadable.
func (f *File) Read(numbers []uint32, visit func(k int, record []byte) error) error {
	memory := f.disk.buffer()
	defer f.disk.memory.Put(memory)
	var rest []byte        // of the group that was read last, from record next on
	var next, after uint32 // after: the first record of the next group
	for k, number := range numbers {
		if number >= f.records {
			return fmt.Errorf("no record %d in a file of %d", number, f.records)
		}
		if number < next || number >= after {
			i := sort.Search(len(f.groups), func(i int) bool { return f.groups[i].first > number }) - 1
			var err error
			if rest, err = f.load(i, memory); err != nil {
				return err
			}
			next, after = f.groups[i].first, f.records
			if i+1 < len(f.groups) {
				after = f.groups[i+1].first
			}
		}
		var record []byte
		for ; next <= number; next++ {
			n := prefix + int(binary.LittleEndian.Uint32(rest))
			record, rest = rest[prefix:n], rest[n:]
		}
		if err := visit(k, record); err != nil {
			return err
		}
	}
	return nil
}

// load reads a group into memory and checks it.
func (f *File) load(i int, memory *[]byte) ([]byte, error) {
	start, g := int64(0), f.groups[i]
	if i > 0 {
		start = f.groups[i-1].end
	}
	if n := int(g.end - start); n > cap(*memory) {
		*memory = make([]byte, n)
	}
	buf := (*memory)[:g.end-start]
	_, err := f.file.ReadAt(buf, start)
	if err == nil {
		if sum := crc32.Checksum(buf, castagnoli); sum != g.sum {
			err = fmt.Errorf("bytes %d to %d of a file of %d were written with checksum %08x and read with %08x", start, g.end, f.size, g.sum, sum)
		}
	}
	if errors.Is(err, os.ErrClosed) {
		return nil, ErrUnreadable
	}
	if err != nil {
		f.disk.fail(fmt.Errorf("reading back: %w", err))
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return buf, nil
}
