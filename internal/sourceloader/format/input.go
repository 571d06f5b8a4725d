package format

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

const (
	readBytes     = 256 << 10                     // one read of a stream: long enough for a disk, short beside a chunk
	rangeBytes    = DefaultChunkBytes + readAhead // one read of a file in a store: a chunk of the default size
	readAhead     = 64 << 10                      // read past the end of a range for the record that crosses it
	maxZstdWindow = 128 << 20                     // what the zstd tool allows without being told more
)

// input is a file as it was listed, open for reading. A file that ends before
// its listed size is an error, never a quiet end.
type input struct {
	store.Handle
	obj store.Object
}

func openInput(ctx context.Context, st store.Store, obj store.Object) (*input, error) {
	h, err := st.Open(ctx, obj)
	if err != nil {
		return nil, err
	}
	return &input{h, obj}, nil
}

func (f *input) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.Handle.ReadAt(p, off)
	if err == io.EOF && off+int64(n) < f.obj.Size {
		return n, fault.Userf("reading %s: it ends at byte %d but was listed with %d bytes: %w",
			f.obj.URI, off+int64(n), f.obj.Size, store.ErrChanged)
	}
	return n, err
}

// rangeReader reads on from a place. Up to stop it reads as much as it is
// asked for, from there on only little more: what belongs to the last record.
type rangeReader struct {
	in   *input
	off  int64
	stop int64
}

func (r *rangeReader) Read(p []byte) (int, error) {
	limit := min(max(r.stop-r.off, 0)+readAhead, r.in.obj.Size-r.off)
	if limit <= 0 {
		return 0, io.EOF
	}
	n, err := r.in.ReadAt(p[:min(int64(len(p)), limit)], r.off)
	r.off += int64(n)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

// stream is the content of a file from its start, decompressed if its name
// ends in .gz, .tgz or .zst. Close closes the file as well.
type stream struct {
	io.Reader
	ctx    context.Context
	raw    *rangeReader
	codec  string // for messages; "" if the file is not compressed
	closes []func() error
}

func openStream(ctx context.Context, st store.Store, obj store.Object) (*stream, error) {
	in, err := openInput(ctx, st, obj)
	if err != nil {
		return nil, err
	}
	s := &stream{ctx: ctx, raw: &rangeReader{in: in, stop: obj.Size}, closes: []func() error{in.Close}}
	s.Reader = s.raw
	switch s.codec = codecOf(obj.URI); s.codec {
	case "gzip":
		s.Reader = newGzipReader(s.raw)
	case "zstd":
		z, err := zstd.NewReader(s.raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxZstdWindow), zstd.WithDecoderMaxMemory(1<<50))
		if err != nil {
			return nil, errors.Join(s.damage(err), s.Close())
		}
		s.Reader = z
		s.closes = append(s.closes, func() error { z.Close(); return nil })
	}
	return s, nil
}

// Read reads content. Its errors are of class User if the data is damaged, and
// those of the store otherwise. It ends with the context: a small file may hold any
// number of bytes in which no record begins.
func (s *stream) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, fmt.Errorf("reading %s: %w", s.raw.in.obj.URI, err)
	}
	if s.codec != "" && s.raw.in.obj.Size == 0 {
		return 0, s.damage(io.ErrUnexpectedEOF)
	}
	n, err := s.Reader.Read(p)
	if err == nil || err == io.EOF {
		return n, err
	}
	return n, s.damage(err)
}

// damage describes what is wrong with compressed bytes, and passes the errors
// of the store on.
func (s *stream) damage(err error) error {
	uri, off := s.raw.in.obj.URI, s.raw.off
	switch {
	case fault.ClassOf(err) != fault.Bug, s.codec == "":
		return err
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fault.Userf("decompressing %s: the %s data is cut off at byte %d, the end of the file: copy the file again", uri, s.codec, off)
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return fault.Userf("decompressing %s: %w: windows of up to %d MiB are read (zstd --long=27)", uri, err, maxZstdWindow>>20)
	}
	return fault.Userf("decompressing %s: damaged %s data before byte %d: %w: copy or compress the file again", uri, s.codec, off, err)
}

// Close releases the file and the decoder.
func (s *stream) Close() error {
	var err error
	for _, close := range s.closes {
		err = errors.Join(err, close())
	}
	return err
}

// codecOf names the compression that a file's name declares. Case does not count, as
// in ByPath.
func codecOf(uri string) string {
	uri = strings.ToLower(uri)
	switch {
	case strings.HasSuffix(uri, ".gz"), strings.HasSuffix(uri, ".tgz"):
		return "gzip"
	case strings.HasSuffix(uri, ".zst"):
		return "zstd"
	}
	return ""
}

// readAll reads r to its end, at most limit bytes; more is ErrTooLong. The
// buffer grows with what is really there, not with what a header claims.
func readAll(buf []byte, r io.Reader, limit int64) ([]byte, error) {
	buf = buf[:0]
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, make([]byte, max(len(buf), 4096))...)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > limit:
			return buf, ErrTooLong
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, err
		}
	}
}

// hasExtension reports whether the name ends in one of the extensions, as it is
// or followed by .gz or .zst. Case does not count.
func hasExtension(uri string, extensions ...string) bool {
	name := strings.ToLower(uri)
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
	for _, ext := range extensions {
		if strings.HasSuffix(name, ext) {
			return true
		}
	}
	return false
}
