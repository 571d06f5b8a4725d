// Package input is what a decoder reads: a file as it was listed, ranges of it,
// and its content as one stream, decompressed if its name says so.
//
// It owns the checks that a file is as long as listed, and the errors of damaged
// compression. It knows nothing of records.
package input

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/formats"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/compress"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Sizes of reads, in bytes.
const (
	ReadBytes  = 256 << 10                            // one read of a stream: long enough for a disk, short beside a chunk
	RangeBytes = format.DefaultChunkBytes + ReadAhead // one read of a file in a store: a chunk of the default size
	ReadAhead  = 64 << 10                             // read past the end of a range for the record that crosses it
)

// File is a file as it was listed, open for reading. A file that ends before
// its listed size is an error, never a quiet end.
type File struct {
	store.Handle
	Object store.Object
}

// Open opens a file.
func Open(ctx context.Context, st store.Store, obj store.Object) (*File, error) {
	h, err := st.Open(ctx, obj)
	if err != nil {
		return nil, err
	}
	return &File{h, obj}, nil
}

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.Handle.ReadAt(p, off)
	if err == io.EOF && off+int64(n) < f.Object.Size {
		return n, fault.Userf("reading %s: it ends at byte %d but was listed with %d bytes: %w",
			f.Object.URI, off+int64(n), f.Object.Size, store.ErrChanged)
	}
	return n, err
}

// ReadFullAt fills buf from off. A file that ends early is the file's fault.
func ReadFullAt(h io.ReaderAt, buf []byte, off int64) error {
	n, err := h.ReadAt(buf, off)
	if n == len(buf) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.Userf("the file ends %d bytes into a read of %d bytes at offset %d: it is truncated, or it changed", n, len(buf), off)
	}
	return fmt.Errorf("reading %d bytes at offset %d: %w", len(buf), off, err)
}

// Range reads on from Off. Up to Stop it reads as much as it is asked for, from
// there on only little more: what belongs to the last record.
type Range struct {
	File *File
	Off  int64 // of the next byte; may be moved
	Stop int64
}

// Read implements io.Reader.
func (r *Range) Read(p []byte) (int, error) {
	limit := min(max(r.Stop-r.Off, 0)+ReadAhead, r.File.Object.Size-r.Off)
	if limit <= 0 {
		return 0, io.EOF
	}
	n, err := r.File.ReadAt(p[:min(int64(len(p)), limit)], r.Off)
	r.Off += int64(n)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

// Stream is the content of a file from its start, decompressed if its name
// ends in .gz, .tgz or .zst.
type Stream struct {
	ctx     context.Context
	content io.Reader
	raw     *Range
	codec   string // for messages; "" if the file is not compressed
	inflate compress.Reader
}

// OpenStream opens a file as a stream. It ends with the context.
func OpenStream(ctx context.Context, st store.Store, obj store.Object) (*Stream, error) {
	in, err := Open(ctx, st, obj)
	if err != nil {
		return nil, err
	}
	s := &Stream{ctx: ctx, raw: &Range{File: in, Stop: obj.Size}}
	s.content = s.raw
	switch s.codec = formats.Codec(obj.URI); s.codec {
	case "gzip":
		s.inflate = compress.NewGzip(s.raw)
	case "zstd":
		if s.inflate, err = compress.NewZstd(s.raw); err != nil {
			return nil, errors.Join(s.damage(err), in.Close())
		}
	}
	if s.inflate != nil {
		s.content = s.inflate
	}
	return s, nil
}

// Read reads content. Its errors are of class User if the data is damaged, and
// those of the store otherwise. It ends with the context: a small file may hold any
// number of bytes in which no record begins.
func (s *Stream) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, fmt.Errorf("reading %s: %w", s.raw.File.Object.URI, err)
	}
	if s.codec != "" && s.raw.File.Object.Size == 0 {
		return 0, s.damage(io.ErrUnexpectedEOF)
	}
	n, err := s.content.Read(p)
	if err == nil || err == io.EOF {
		return n, err
	}
	return n, s.damage(err)
}

// Skip moves n bytes ahead without reading them, or to the end of the file, and returns how many it could: none of a
// compressed file, which must be read.
func (s *Stream) Skip(n int64) int64 {
	if s.codec != "" {
		return 0
	}
	n = min(n, max(s.raw.File.Object.Size-s.raw.Off, 0))
	s.raw.Off += n
	return n
}

// Held is the memory of the decompression, in bytes.
func (s *Stream) Held() int64 {
	if s.inflate == nil {
		return 0
	}
	return s.inflate.Held()
}

// damage describes what is wrong with compressed bytes, and passes the errors
// of the store on.
func (s *Stream) damage(err error) error {
	uri, off := s.raw.File.Object.URI, s.raw.Off
	if fault.ClassOf(err) != fault.Bug || s.codec == "" {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fault.Userf("decompressing %s: the %s data is cut off at byte %d, the end of the file: copy the file again", uri, s.codec, off)
	}
	if long := compress.WindowTooLong(uri, err); long != nil {
		return long
	}
	return fault.Userf("decompressing %s: damaged %s data before byte %d: %w: copy or compress the file again", uri, s.codec, off, err)
}

// Close releases the file and the decoder.
func (s *Stream) Close() error {
	if s.inflate != nil {
		s.inflate.Close()
	}
	return s.raw.File.Close()
}

// ReadAll reads r to its end, at most limit bytes; more is format.ErrTooLong. The
// buffer grows with what is really there, not with what a header claims.
func ReadAll(buf []byte, r io.Reader, limit int64) ([]byte, error) {
	buf = buf[:0]
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, make([]byte, max(len(buf), 4096))...)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > limit:
			return buf, format.ErrTooLong
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, err
		}
	}
}
