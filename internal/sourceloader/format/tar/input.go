package tar

import (
	"bufio"
	"errors"
	"io"

	"github.com/millrace-data/millrace/internal/sourceloader/format/input"
)

// archive feeds the tar reader: it buffers its many small reads, skips over
// members that are not wanted (without reading them where the file is not
// compressed), knows the place, and notes a block of zeros, the mark that ends
// an archive.
type archive struct {
	s     *input.Stream
	buf   *bufio.Reader
	off   int64 // place in the uncompressed archive
	zeros bool  // the last read was a whole block of zeros
}

const block = 512

func newArchive(s *input.Stream) *archive {
	return &archive{s: s, buf: bufio.NewReaderSize(s, input.ReadBytes)}
}

// Read fills p as far as it can, so that each block that is asked for is one
// call.
func (t *archive) Read(p []byte) (int, error) {
	n, err := io.ReadFull(t.buf, p)
	t.off += int64(n)
	if n > 0 {
		t.zeros = n == block && allZero(p[:n])
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

// Seek moves forward only, from where it is: what the tar reader does to skip.
func (t *archive) Seek(n int64, whence int) (int64, error) {
	if whence != io.SeekCurrent || n < 0 {
		return t.off, errors.New("a tar is read forward only")
	}
	left := n
	if ahead := int64(t.buf.Buffered()); n > ahead {
		if skipped := t.s.Skip(n - ahead); skipped > 0 {
			t.buf.Reset(t.s)
			t.off += ahead + skipped
			left -= ahead + skipped
		}
	}
	for left > 0 {
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
