package format

import (
	"bufio"
	"errors"
	"io"
)

// tarInput feeds archive/tar: it buffers its many small reads, skips over
// members that are not wanted (without reading them where the file is not
// compressed), knows the place, and notes a block of zeros, the mark that ends
// an archive.
type tarInput struct {
	s     *stream
	buf   *bufio.Reader
	off   int64 // place in the uncompressed archive
	zeros bool  // the last read was a whole block of zeros
}

const tarBlock = 512

func newTarInput(s *stream) *tarInput {
	return &tarInput{s: s, buf: bufio.NewReaderSize(s, readBytes)}
}

// Read fills p as far as it can, so that each block archive/tar asks for is one
// call.
func (t *tarInput) Read(p []byte) (int, error) {
	n, err := io.ReadFull(t.buf, p)
	t.off += int64(n)
	if n > 0 {
		t.zeros = n == tarBlock && allZero(p[:n])
	}
	if err == io.ErrUnexpectedEOF {
		return n, nil // the next read says io.EOF
	}
	return n, err
}

func allZero(p []byte) bool {
	for _, c := range p {
		if c != 0 {
			return false
		}
	}
	return true
}

// Seek moves forward only, from where it is: what archive/tar does to skip.
func (t *tarInput) Seek(n int64, whence int) (int64, error) {
	if whence != io.SeekCurrent || n < 0 {
		return t.off, errors.New("a tar is read forward only")
	}
	if ahead := int64(t.buf.Buffered()); n > ahead && t.s.codec == "" {
		t.s.raw.off += n - ahead
		t.buf.Reset(t.s)
		t.off += n
		return t.off, nil
	}
	for left := n; left > 0; {
		skipped, err := t.buf.Discard(int(min(left, 1<<30)))
		t.off += int64(skipped)
		left -= int64(skipped)
		if err == io.EOF {
			return t.off, io.ErrUnexpectedEOF
		}
		if err != nil {
			return t.off, err
		}
	}
	return t.off, nil
}
