package json

import (
	"bytes"
	"io"
	"sync"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// lineReader cuts a stream into lines. It holds the longest line read so far,
// at most limit bytes.
type lineReader struct {
	r     io.Reader
	limit int64 // of a line; longer ones are format.ErrTooLong
	buf   []byte
	from  int   // buf[from:to] is read and not yet handed out
	to    int   //
	off   int64 // place of buf[from] in the stream
	count int64 // lines handed out
	err   error // what ended the stream
}

// newLineReader reads the lines of r, which is at the place off of its stream,
// through buf, which must not be empty; the reader owns it. Lines have at most limit bytes.
func newLineReader(r io.Reader, off, limit int64, buf []byte) *lineReader {
	return &lineReader{r: r, off: off, limit: limit, buf: buf}
}

// maxScratch is the longest line buffer that is kept: what books need.
const maxScratch = 8 << 20

// lineBuffers holds buffers of lines that the next read can use again: without it, a
// third of the time goes into clearing new ones.
var lineBuffers = sync.Pool{New: func() any { return new([]byte) }}

// lineBuffer returns a buffer of n bytes or more.
func lineBuffer(n int64) []byte {
	buf := *lineBuffers.Get().(*[]byte)
	if int64(cap(buf)) < n {
		return make([]byte, n)
	}
	return buf[:cap(buf)]
}

// release gives the buffer, grown as it is, to the next reader.
func (l *lineReader) release() {
	if buf := l.buf; cap(buf) <= maxScratch {
		lineBuffers.Put(&buf)
	}
	l.buf = nil
}

// next returns the next line without its newline, and its place in the stream.
// The line is valid until the following call. The last line needs no newline.
// At the end the error is io.EOF. After ErrTooLong the line is still to be skipped.
func (l *lineReader) next() (line []byte, off int64, err error) {
	for seen := 0; ; {
		if i := bytes.IndexByte(l.buf[l.from+seen:l.to], '\n'); i >= 0 {
			end := l.from + seen + i
			if int64(seen+i) > l.limit {
				return nil, l.off, format.ErrTooLong
			}
			return l.take(end, end+1)
		}
		seen = l.to - l.from
		if int64(seen) > l.limit {
			return nil, l.off, format.ErrTooLong
		}
		if l.err == io.EOF && seen > 0 {
			return l.take(l.to, l.to)
		}
		if l.err != nil {
			return nil, l.off, l.err
		}
		l.fill()
	}
}

// take hands out buf[from:end]; what follows it begins at next.
func (l *lineReader) take(end, next int) ([]byte, int64, error) {
	line, off := l.buf[l.from:end], l.off
	l.off += int64(next - l.from)
	l.from = next
	l.count++
	return line, off, nil
}

// fill reads once more, after moving what is left to the front, or into a
// buffer twice as long, or as long as a line may be, if it fills this one.
func (l *lineReader) fill() {
	if l.from > 0 || l.to == len(l.buf) {
		buf := l.buf
		if l.to-l.from == len(l.buf) {
			buf = make([]byte, min(2*len(l.buf), max(int(l.limit), len(l.buf))+1))
		}
		l.to = copy(buf, l.buf[l.from:l.to])
		l.buf, l.from = buf, 0
	}
	n, err := l.r.Read(l.buf[l.to:])
	l.to += n
	l.err = err
}

// discard drops everything before the place off, and counts the lines.
func (l *lineReader) discard(off int64) {
	for l.off < off {
		n := int(min(off-l.off, int64(l.to-l.from)))
		if n == 0 && l.err != nil {
			return
		}
		if n == 0 {
			l.fill()
			continue
		}
		l.count += int64(bytes.Count(l.buf[l.from:l.from+n], []byte{'\n'}))
		l.from += n
		l.off += int64(n)
	}
}

// skipLine drops everything up to and with the next newline, without holding
// it, and returns false if the next one is not before the place stop.
func (l *lineReader) skipLine(stop int64) bool {
	for {
		if i := bytes.IndexByte(l.buf[l.from:l.to], '\n'); i >= 0 {
			l.from += i + 1
			l.off += int64(i + 1)
			return l.off < stop
		}
		l.off += int64(l.to - l.from)
		l.from, l.to = 0, 0
		if l.err != nil || l.off >= stop {
			return false
		}
		l.fill()
	}
}
