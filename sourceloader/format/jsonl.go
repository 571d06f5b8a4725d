package format

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/sourceloader/store"
)

// JSONL reads JSON Lines: one object a line. Lines end in LF or CRLF, the last
// one need not; blank lines and a byte order mark at the start are skipped. A
// line that is not valid JSON, not valid UTF-8 or not an object is a bad
// record. See docs/formats.md for what its values are.
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
	objects, err := newObjectReader(opt.Columns)
	if err != nil {
		return err
	}
	lines := &jsonLines{ctx: ctx, uri: obj.URI, objects: objects}
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
	j.lines = newLineReader(r, off, scratch.buffer(buffer))
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

	// For line numbers, which are counted only when a message needs one.
	before io.ReaderAt // the file, if lines begins inside it
	start  int64       // where lines begins
	above  int64       // lines before start, once counted
	known  bool        // above is counted
}

func (j *jsonLines) each(fn func(*Record) error) error {
	var rec Record
	lacks := j.objects.lacks
	for j.lines.off < j.stop {
		line, off, err := j.lines.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return j.broken(off, err)
		}
		if off == 0 {
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		if len(bytes.TrimLeft(line, " \t\r")) == 0 {
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
	}
	return nil
}

// ended returns what ended the stream before a line began, nil at its end.
func (j *jsonLines) ended() error {
	if err := j.lines.err; err != nil && err != io.EOF {
		return j.broken(j.lines.off, err)
	}
	return nil
}

func (j *jsonLines) broken(off int64, err error) error {
	if err == errTooLong {
		return fault.Userf("%s: the line at byte %d is %w: split it, or check that the file is JSON Lines", j.uri, off, err)
	}
	return err
}

// bad describes the bad record that was read last. The second error is one
// of reading the file.
func (j *jsonLines) bad(off int64, line []byte, problem string) (record, failure error) {
	if off == 0 && (bytes.HasPrefix(line, gzipMagic) || bytes.HasPrefix(line, zstdMagic)) {
		return nil, fault.Userf("%s: it is compressed: give its name the ending .gz or .zst", j.uri)
	}
	if !j.known && j.before != nil {
		var err error
		if j.above, err = countLines(io.NewSectionReader(j.before, 0, j.start)); err != nil {
			return nil, fmt.Errorf("counting the lines of %s: %w", j.uri, err)
		}
	}
	j.known = true
	return fault.Userf("%s:%d: (byte %d) the line is %s: mend the line or set bad_records.policy: skip", j.uri, j.above+j.lines.count, off, problem), nil
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
