package json

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/formats"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/input"
	"github.com/millrace-data/millrace/internal/sourceloader/format/jsonobject"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Lines reads JSON Lines: one object a line. Lines end in LF or CRLF, the last
// one need not; blank lines and a byte order mark at the start are skipped. A
// line that is not valid JSON, not valid UTF-8, not an object or longer than
// Options.MaxRecord is a bad record. More than Options.MaxRecord of blank lines in a
// row is an error of the file. See docs/file-formats.md for what its values are.
//
// A plain file is read in byte ranges of ChunkBytes: a chunk has the records
// that begin in its range. A file whose name ends in .gz or .zst is one chunk,
// decompressed as it is read.
type Lines struct{}

var _ format.Rows = Lines{}

// Name implements format.Format.
func (Lines) Name() string { return formats.JSONL }

// RowsBelow implements format.Rows.
func (Lines) RowsBelow(obj store.Object) int64 {
	if formats.Codec(obj.URI) != "" {
		return 0
	}
	return obj.Size
}

// InBytes implements format.Rows.
func (Lines) InBytes() bool { return true }

// Chunks implements format.Format. It reads nothing.
func (Lines) Chunks(_ context.Context, _ store.Store, obj store.Object, opt format.Options) (int, error) {
	if formats.Codec(obj.URI) != "" {
		return 1, nil
	}
	return opt.Ranges(obj.Size), nil
}

// Open implements format.Format.
func (Lines) Open(ctx context.Context, st store.Store, obj store.Object, chunk int, from format.Position, opt format.Options) (format.Reader, error) {
	objects, err := jsonobject.New(opt.Columns, opt.ElementLimit())
	if err != nil {
		return nil, err
	}
	l := &lines{ctx: ctx, uri: obj.URI, objects: objects, lacks: objects.Lacks, limit: opt.RecordLimit()}
	if formats.Codec(obj.URI) == "" {
		err = l.openRange(st, obj, int64(chunk)*opt.ChunkSize(), opt.ChunkSize(), int64(from))
	} else {
		err = l.openStream(st, obj, int64(from))
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// openRange opens the records that begin in size bytes from begin on, those before the
// byte from left out.
func (l *lines) openRange(st store.Store, obj store.Object, begin, size, from int64) error {
	in, err := input.Open(l.ctx, st, obj)
	if err != nil {
		return err
	}
	l.file, l.before, l.stop = in, in, min(begin+size, obj.Size)
	begin = max(begin, from)
	// The range begins one byte early: a newline there means that a line
	// begins just where the range does.
	l.start = max(begin-1, 0)
	r := &input.Range{File: in, Off: l.start, Stop: l.stop}
	buffer := min(max(l.stop-l.start, 0)+input.ReadAhead, input.RangeBytes)
	l.lineReader = newLineReader(r, l.start, l.limit, lineBuffer(buffer))
	if begin > 0 {
		l.count = 1
		return l.stepOver(l.start)
	}
	return nil
}

// openStream opens the records of a compressed file that begin at byte from or after it.
func (l *lines) openStream(st store.Store, obj store.Object, from int64) error {
	s, err := input.OpenStream(l.ctx, st, obj)
	if err != nil {
		return err
	}
	l.file, l.stream, l.stop = s, s, maxOffset
	l.lineReader = newLineReader(s, 0, l.limit, lineBuffer(input.ReadBytes))
	if from == 0 {
		return nil
	}
	l.discard(from - 1)
	l.count++
	return l.stepOver(from - 1)
}

const maxOffset = 1 << 62 // beyond any file

var (
	byteOrderMark = []byte("\xef\xbb\xbf")
	gzipMagic     = []byte("\x1f\x8b")
	zstdMagic     = []byte("\x28\xb5\x2f\xfd")
)

// lines reads the records of the lines that begin before stop.
type lines struct {
	*lineReader
	ctx     context.Context
	uri     string
	file    io.Closer
	stream  *input.Stream // nil if the file is not compressed
	objects *jsonobject.Reader
	lacks   func(int) (string, []string)
	stop    int64
	limit   int64 // bytes of a line, and of blank lines in a row

	rec   format.Record
	long  bool  // the last record was too long a line, which is still to be stepped over
	blank int64 // where the blank lines before the next record begin

	// For line numbers, which are counted only when a message needs one.
	before io.ReaderAt // the file, if lines begins inside it
	start  int64       // where lines begins
	above  int64       // lines before start, once counted
	known  bool        // above is counted
}

// Next implements format.Reader.
func (l *lines) Next() (*format.Record, error) {
	if err := l.ctx.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", l.uri, err)
	}
	if l.long {
		l.long = false
		if err := l.stepOver(l.rec.Row); err != nil {
			return nil, err
		}
	}
	for l.off < l.stop {
		line, off, err := l.next()
		switch {
		case err == format.ErrTooLong:
			return l.tooLong(off)
		case err != nil:
			return nil, err
		}
		if off == 0 {
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		if len(bytes.TrimLeft(line, " \t\r")) == 0 {
			if l.off-l.blank > l.limit {
				return nil, format.TooLong(l.limit, "%s: byte %d: the blank lines from byte %d on are", l.uri, l.off, l.blank)
			}
			continue
		}
		l.blank = l.off
		l.rec = format.Record{Row: off, Lacks: l.lacks}
		values, problem := l.objects.Read(line)
		if problem == "" {
			l.rec.Values = values
		} else if l.rec.Err, err = l.bad(off, line, problem); err != nil {
			return nil, err
		}
		return &l.rec, nil
	}
	return nil, io.EOF
}

// tooLong returns the line at off, which is too long, as a bad record.
func (l *lines) tooLong(off int64) (*format.Record, error) {
	l.count++
	above, err := l.linesAbove()
	if err != nil {
		return nil, err
	}
	l.long = true
	l.rec = format.Record{Row: off, Err: format.TooLong(l.limit, "%s:%d: (byte %d) the line is", l.uri, above+l.count, off)}
	return &l.rec, nil
}

// stepOver drops what is left of the line at off, the last one that is counted.
func (l *lines) stepOver(off int64) error {
	most := off + format.MaxRecordBytes
	if !l.skipLine(min(l.stop, most)) && l.err == nil && l.off < l.stop && l.off >= most {
		above, err := l.linesAbove()
		if err != nil {
			return err
		}
		return fault.Userf("%s:%d: (byte %d) the line does not end within %d bytes: check that the file is JSON Lines", l.uri, above+l.count, off, format.MaxRecordBytes)
	}
	l.blank = l.off
	if l.err != nil && l.err != io.EOF {
		return l.err
	}
	return nil
}

// bad describes the bad record that was read last. The second error is one
// of reading the file.
func (l *lines) bad(off int64, line []byte, problem string) (record, failure error) {
	if off == 0 && (bytes.HasPrefix(line, gzipMagic) || bytes.HasPrefix(line, zstdMagic)) {
		return nil, fault.Userf("%s: it is compressed: give its name the ending .gz or .zst", l.uri)
	}
	above, err := l.linesAbove()
	if err != nil {
		return nil, err
	}
	if field := l.objects.Field(); field != nil {
		return fault.Userf("%s:%d: (byte %d) %w", l.uri, above+l.count, off, field), nil
	}
	return fault.Userf("%s:%d: (byte %d) the line is %s: fix the line", l.uri, above+l.count, off, problem), nil
}

// linesAbove counts the lines before the place where reading began, once.
func (l *lines) linesAbove() (n int64, err error) {
	if !l.known && l.before != nil {
		if l.above, err = countLines(io.NewSectionReader(l.before, 0, l.start)); err != nil {
			return 0, fmt.Errorf("counting the lines of %s: %w", l.uri, err)
		}
	}
	l.known = true
	return l.above, nil
}

func countLines(r io.Reader) (int64, error) {
	buf := make([]byte, input.ReadBytes)
	for count := int64(0); ; {
		n, err := r.Read(buf)
		count += int64(bytes.Count(buf[:n], []byte{'\n'}))
		if err == io.EOF {
			return count, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// Held implements format.Reader.
func (l *lines) Held() int64 {
	held := int64(cap(l.buf)) + l.objects.Held()
	if l.stream != nil {
		held += l.stream.Held()
	}
	return held
}

// Close implements format.Reader.
func (l *lines) Close() error {
	l.objects.Release()
	if l.lineReader != nil {
		l.release()
	}
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
