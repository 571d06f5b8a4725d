package checkpoint

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// mark says what a log holds after a write: a high-water mark. The database has that of
// its last write, as part of the same batch. A file beside it has a copy, which is synced
// before the write is acknowledged; so what the file says is what must be there, however
// the database's files end. After a crash the database may be one write ahead of the
// file, never behind.
type mark struct {
	seq     int64 // writes so far
	steps   span
	changes int64
	sum     sum // of all keys and values
	before  sum // the sum before the last write: of which mark this one is the next
}

// sum is the exclusive or of the SHA-256 of all keys with their values, and of the job's
// identity. A pair that is put in or taken out changes it alike, in any order.
type sum [32]byte

// toggle adds a pair that is not there, or takes out one that is.
func (s *sum) toggle(key, value []byte) {
	h := sha256.New()
	h.Write(key) // keys are of one length, so that no two pairs read alike
	h.Write(value)
	var digest [32]byte
	for i, b := range h.Sum(digest[:0]) {
		s[i] ^= b
	}
}

// The bytes of a mark, in the database and in its file; docs/bytes.md has them.
const (
	markMagic = "mr-mark3"
	markBytes = len(markMagic) + 4*8 + 2*32 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (m mark) encode() []byte {
	b := append(make([]byte, 0, markBytes), markMagic...)
	for _, n := range []int64{m.seq, m.steps.first, m.steps.next, m.changes} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	b = append(append(b, m.sum[:]...), m.before[:]...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeMark reads the mark at the beginning of b; ok is false if there is none.
func decodeMark(b []byte) (m mark, ok bool) {
	if len(b) < markBytes || string(b[:len(markMagic)]) != markMagic {
		return m, false
	}
	body, check := b[:markBytes-4], b[markBytes-4:markBytes]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(check) {
		return m, false
	}
	body = body[len(markMagic):]
	for _, n := range []*int64{&m.seq, &m.steps.first, &m.steps.next, &m.changes} {
		*n = int64(binary.BigEndian.Uint64(body))
		body = body[8:]
	}
	copy(m.sum[:], body)
	copy(m.before[:], body[len(m.sum):])
	return m, true
}

// The file of the mark has two places, which are written in turn: a crash while one is
// written leaves the other. They are a page apart, so that no disk writes both at once.
// All bytes are there from the beginning, so that a sync has no size to write.
const (
	markName   = "HIGHWATER"
	markStride = 4096
)

func place(m mark) int64 { return m.seq % 2 * markStride }

// fileMark is what the file of the mark says.
type fileMark struct {
	mark
	there bool // there is a file
	whole bool // and a mark in it
}

// readMark reads the file of the mark by its name.
func readMark(disk vfs.FS, path string) (f fileMark, err error) {
	b, err := readFile(disk, path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	f.there = true
	for i := range 2 {
		if m, ok := decodeMark(b[min(i*markStride, len(b)):]); ok && (!f.whole || m.seq > f.seq) {
			f.mark, f.whole = m, true
		}
	}
	return f, nil
}

func readFile(disk vfs.FS, path string) ([]byte, error) {
	f, err := disk.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, 2*markStride))
	return b, errors.Join(err, f.Close())
}

// createMark makes the file of the mark, whole or not at all.
func createMark(disk vfs.FS, dir string, m mark) error {
	b := make([]byte, 2*markStride)
	copy(b[place(m):], m.encode())
	path := disk.PathJoin(dir, markName)
	f, err := disk.Create(path+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := disk.Rename(path+".new", path); err != nil {
		return err
	}
	return syncFolder(disk, dir)
}

// writeMark makes m durable. It leaves the mark before it alone.
func writeMark(f vfs.File, m mark) error {
	if _, err := f.WriteAt(m.encode(), place(m)); err != nil {
		return err
	}
	return f.SyncData()
}
