package compress

import (
	"bufio"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
)

// gzipReader reads the members of a gzip file, one after the other, as one stream. The
// library decodes a member; where one begins and the file ends is said here, because
// the library takes a file that is cut inside the name or comment of a member's
// header for one that ends before it. Zeros after the last member are padding, as
// tapes and some stores write it; anything else that is not a member is an error.
//
// The first member is looked for at the first Read, so that all damage is found by Read.
type gzipReader struct {
	raw    *bufio.Reader
	member *gzip.Reader // nil before the first one
	err    error        // what ended the file
}

// NewGzip reads the members of raw, one after the other, as one stream. A file that is
// cut off is io.ErrUnexpectedEOF, an empty one too.
func NewGzip(raw io.Reader) Reader {
	return &gzipReader{raw: bufio.NewReader(raw)}
}

// gzipBytes is the memory of one decoder: window, tables and read buffer, measured.
const gzipBytes = 52 << 10

// Held implements Reader.
func (g *gzipReader) Held() int64 { return gzipBytes }

// Close implements Reader.
func (g *gzipReader) Close() {}

// Read implements io.Reader.
func (g *gzipReader) Read(p []byte) (n int, err error) {
	if g.member == nil && g.err == nil {
		g.member = new(gzip.Reader)
		g.err = g.open()
	}
	for n == 0 && g.err == nil && len(p) > 0 {
		n, g.err = g.member.Read(p)
		if g.err == io.EOF {
			g.err = g.next()
		}
	}
	if n > 0 {
		return n, nil
	}
	return 0, g.err
}

// next goes to the member after the one that has ended, and is io.EOF after the last one.
func (g *gzipReader) next() error {
	ahead, err := g.raw.Peek(1)
	if err == nil && ahead[0] == 0 {
		return g.padding()
	}
	if err != nil {
		return err // io.EOF: the file ends with its last member
	}
	return g.open()
}

// open reads the header of a member. The end of the file is not expected in it.
func (g *gzipReader) open() error {
	err := g.member.Reset(g.raw)
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	g.member.Multistream(false)
	return err
}

// padding reads zeros up to the end of the file.
func (g *gzipReader) padding() error {
	for {
		c, err := g.raw.ReadByte()
		switch {
		case err != nil:
			return err
		case c != 0:
			return gzip.ErrHeader
		}
	}
}
