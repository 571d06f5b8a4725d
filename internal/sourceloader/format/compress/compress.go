// Package compress decompresses what files of records hold: the members of a
// gzip file as one stream, and blocks whose length is known before.
//
// It owns the bounds: memory follows the bytes that are there, never a length
// that a header merely claims. It never opens a file. Everything here is safe
// for concurrent use but for a stream, which has one reader.
package compress

import (
	"errors"
	"io"

	"github.com/millrace-data/millrace/internal/fault"
)

// Reader is the content of a compressed stream. Close gives up its memory; the
// stream below stays open.
type Reader interface {
	io.Reader
	// Held is the memory in bytes that decompression holds now.
	Held() int64
	Close()
}

// Sized returns buf with size bytes, in new memory if it is too short.
func Sized(buf []byte, size int) []byte {
	if cap(buf) < size {
		return make([]byte, size)
	}
	return buf[:size]
}

// Inflate reads r to its end. The buffer grows with what is really there, so
// that a claimed size alone allocates little.
func Inflate(r io.Reader, buf []byte, compressed, size int) ([]byte, error) {
	buf = Sized(buf, min(size, 16*compressed+4096))
	n := 0
	for {
		m, err := io.ReadFull(r, buf[n:])
		n += m
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return buf[:n], notTruncated(r, err)
		case err != nil:
			return nil, err
		case n < size:
			grown := make([]byte, min(size, 2*n))
			copy(grown, buf)
			buf = grown
			continue
		}
		var more [1]byte
		switch m, err := io.ReadFull(r, more[:]); {
		case m > 0:
			return nil, fault.Userf("the compressed data is longer than the %d bytes that its header claims", size)
		case !errors.Is(err, io.EOF):
			return nil, err
		}
		return buf[:n], nil
	}
}

// notTruncated tells the end of the data from a stream that was cut: ReadFull
// reports both as an unexpected end, the reader itself does not.
func notTruncated(r io.Reader, err error) error {
	var more [1]byte
	if _, again := r.Read(more[:]); again != nil && !errors.Is(again, io.EOF) {
		return err
	}
	return nil
}
