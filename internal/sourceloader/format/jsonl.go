package format

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// JSONL reads JSON Lines: one object a line. Lines end in LF or CRLF, the last
// one need not; blank lines and a byte order mark at the start are skipped. A
// line that is not valid JSON, not valid UTF-8, not an object or longer than
// Options.MaxRecord is a bad record. So many bytes of blank lines on end are an error of the file. See docs/file-formats.md for what its values are.
//
// A plain file is read in byte ranges of ChunkBytes: a chunk has the records
// that begin in its range. A file whose name ends in .gz or .zst is one chunk,
// decompressed as it is read.
type JSONL struct{}

var (
	_ Format = JSONL{}
	_ Filter = JSONL{}
)

// Name implements Format.
func (JSONL) Name() string { return "jsonl" }

// Accepts implements Filter.
func (JSONL) Accepts(uri string) bool { return hasExtension(uri, ".jsonl", ".ndjson", ".json") }

// Chunks implements Format. It reads nothing.
func (JSONL) Chunks(_ context.Context, _ store.Store, obj store.Object, opt Options) (int, error) {
	if codecOf(obj.URI) != "" {
		return 1, nil
	}
	return rangeChunks(obj.Size, opt), nil
}

// rangeChunks returns how many ranges of ChunkBytes size bytes have.
func rangeChunks(size int64, opt Options) int {
	chunk := opt.chunkBytes()
	return int((size + chunk - 1) / chunk)
}

func (o Options) chunkBytes() int64 {
	if o.ChunkBytes <= 0 {
		return DefaultChunkBytes
	}
	return o.ChunkBytes
}

// Read implements Format.
func (JSONL) Read(ctx context.Context, st store.Store, obj store.Object, chunk int, opt Options, fn func(*Record) error) error {
	objects, err := newObjectReader(opt.Columns, opt.maxElements())
	if err != nil {
		return err
	}
	lines := &jsonLines{ctx: ctx, uri: obj.URI, objects: objects, limit: opt.maxRecord()}
	if codecOf(obj.URI) == "" {
		return lines.readRange(st, obj, int64(chunk)*opt.chunkBytes(), opt.chunkBytes(), fn)
	}
	s, err := openStream(ctx, st, obj)
	if err != nil {
		return err
	}
	defer s.Close()
	defer lines.borrow(s, 0, readBytes)()
	lines.stop = maxOffset
	return lines.each(fn)
}

// readRange reads the records that begin in the size bytes from from on.
func (j *jsonLines) readRange(st store.Store, obj store.Object, from, size int64, fn func(*Record) error) error {
	in, err := openInput(j.ctx, st, obj)
	if err != nil {
		return err
	}
	defer in.Close()
	j.before, j.stop = in, min(from+size, obj.Size)
	// The range begins one byte early: a newline there means that a line
	// begins just where the range does.
	start := max(from-1, 0)
	r := &rangeReader{in: in, off: start, stop: j.stop}
	defer j.borrow(r, start, min(max(j.stop-start, 0)+readAhead, rangeBytes))()
	if from > 0 && !j.lines.skipLine(j.stop) {
		return j.ended()
	}
	j.start = j.lines.off
	return j.each(fn)
}

// borrow sets j up to read r with lent memory, which the returned function
// gives back.
func (j *jsonLines) borrow(r io.Reader, off, buffer int64) (release func()) {
	scratch := lineScratches.Get().(*lineScratch)
	j.lines = newLineReader(r, off, j.limit, scratch.buffer(buffer))
	j.objects.text = scratch.text
	return func() { scratch.release(j.lines, j.objects) }
}

const maxOffset = 1 << 62 // beyond any file

var (
	byteOrderMark = []byte("\xef\xbb\xbf")
	gzipMagic     = []byte("\x1f\x8b")
	zstdMagic     = []byte("\x28\xb5\x2f\xfd")
)

// jsonLines reads the records of the lines that begin before stop.
type jsonLines struct {
	ctx     context.Context
	uri     string
	objects *objectReader
	lines   *lineReader
	stop    int64
	limit   int64 // bytes of a line, and of blank lines on end

	// For line numbers, which are counted only when a message needs one.
	before io.ReaderAt // the file, if lines begins inside it
	start  int64       // where lines begins
	above  int64       // lines before start, once counted
	known  bool        // above is counted
}

func (j *jsonLines) each(fn func(*Record) error) error {
	var rec Record
	lacks := j.objects.lacks
	blank := j.lines.off // where the blank lines before the next record begin
	for j.lines.off < j.stop {
		line, off, err := j.lines.next()
		switch {
		case err == io.EOF:
			return nil
		case err == ErrTooLong:
			if err := j.long(off, fn); err != nil {
				return err
			}
			blank = j.lines.off
			continue
		case err != nil:
			return err
		}
		if off == 0 {
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		if len(bytes.TrimLeft(line, " \t\r")) == 0 {
			if j.lines.off-blank > j.limit {
				return TooLong(j.limit, "%s: byte %d: the blank lines from byte %d on are", j.uri, j.lines.off, blank)
			}
			continue
		}
		rec = Record{Row: off, Lacks: lacks}
		values, problem := j.objects.read(line)
		if problem == "" {
			rec.Values = values
		} else if rec.Err, err = j.bad(off, line, problem); err != nil {
			return err
		}
		if err := j.ctx.Err(); err != nil {
			return fmt.Errorf("reading %s: %w", j.uri, err)
		}
		if err := fn(&rec); err != nil {
			return err
		}
		blank = j.lines.off
	}
	return nil
}

// long hands out the line at off, which is too long, as a bad record, and steps over it.
func (j *jsonLines) long(off int64, fn func(*Record) error) error {
	j.lines.count++
	above, err := j.linesAbove()
	if err != nil {
		return err
	}
	rec := Record{Row: off, Err: TooLong(j.limit, "%s:%d: (byte %d) the line is", j.uri, above+j.lines.count, off)}
	if err := fn(&rec); err != nil {
		return err
	}
	if most := off + MaxRecordBytes; !j.lines.skipLine(min(j.stop, most)) && j.lines.err == nil && j.lines.off < j.stop && j.lines.off >= most {
		return fault.Userf("%s:%d: (byte %d) the line does not end within %d bytes: check that the file is JSON Lines", j.uri, above+j.lines.count, off, MaxRecordBytes)
	}
	return j.ended()
}

// ended returns what ended the stream before a line began, nil at its end.
func (j *jsonLines) ended() error {
	if err := j.lines.err; err != nil && err != io.EOF {
		return err
	}
	return nil
}

// bad describes the bad record that was read last. The second error is one
// of reading the file.
func (j *jsonLines) bad(off int64, line []byte, problem string) (record, failure error) {
	if off == 0 && (bytes.HasPrefix(line, gzipMagic) || bytes.HasPrefix(line, zstdMagic)) {
		return nil, fault.Userf("%s: it is compressed: give its name the ending .gz or .zst", j.uri)
	}
	above, err := j.linesAbove()
	if err != nil {
		return nil, err
	}
	if tooMany := j.objects.tooMany; tooMany != nil {
		return fault.Userf("%s:%d: (byte %d) %w", j.uri, above+j.lines.count, off, tooMany), nil
	}
	return fault.Userf("%s:%d: (byte %d) the line is %s: mend the line or set bad_records.policy: skip", j.uri, above+j.lines.count, off, problem), nil
}

// linesAbove counts the lines before the place where reading began, once.
func (j *jsonLines) linesAbove() (n int64, err error) {
	if !j.known && j.before != nil {
		if j.above, err = countLines(io.NewSectionReader(j.before, 0, j.start)); err != nil {
			return 0, fmt.Errorf("counting the lines of %s: %w", j.uri, err)
		}
	}
	j.known = true
	return j.above, nil
}

func countLines(r io.Reader) (int64, error) {
	buf := make([]byte, readBytes)
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
