package format

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// JSON reads .json files, whatever of three things they hold: one array of
// objects (an element is a record, and the array one chunk, streamed), JSON
// Lines (read as by JSONL) or one single object (one record). The first
// character that is not white space tells the array; a first line that is a
// valid object tells JSON Lines. An element that is valid JSON but no object is
// a bad record; a syntax error in an array ends the file, as nothing says where
// the next element begins.
type JSON struct{}

var (
	_ Format = JSON{}
	_ Filter = JSON{}
)

// Name implements Format.
func (JSON) Name() string { return "json" }

// Accepts implements Filter.
func (JSON) Accepts(uri string) bool { return hasExtension(uri, ".json") }

// Chunks implements Format. It reads up to the end of the first line at most.
func (JSON) Chunks(ctx context.Context, st store.Store, obj store.Object, opt Options) (int, error) {
	if codecOf(obj.URI) != "" {
		return 1, nil
	}
	layout, err := layoutOf(ctx, st, obj, opt.maxRecord())
	switch {
	case err != nil || layout == jsonNothing:
		return 0, err
	case layout == jsonLayoutLines:
		return JSONL{}.Chunks(ctx, st, obj, opt)
	}
	return 1, nil
}

// Read implements Format.
func (JSON) Read(ctx context.Context, st store.Store, obj store.Object, chunk int, opt Options, fn func(*Record) error) error {
	objects, err := newObjectReader(opt.Columns, opt.maxElements())
	if err != nil {
		return err
	}
	layout, err := layoutOf(ctx, st, obj, opt.maxRecord())
	switch {
	case err != nil || layout == jsonNothing:
		return err
	case layout == jsonLayoutLines:
		return JSONL{}.Read(ctx, st, obj, chunk, opt, fn)
	}
	s, err := openStream(ctx, st, obj)
	if err != nil {
		return err
	}
	defer s.Close()
	array := &jsonArray{ctx: ctx, uri: obj.URI, objects: objects, r: s, buf: make([]byte, 0, readBytes), single: layout == jsonObject, limit: opt.maxRecord()}
	return array.each(fn)
}

type jsonLayout int

const (
	jsonNothing jsonLayout = iota
	jsonArrayLayout
	jsonLayoutLines
	jsonObject
)

// layoutOf looks at the start of a file to tell what it holds.
func layoutOf(ctx context.Context, st store.Store, obj store.Object, limit int64) (jsonLayout, error) {
	s, err := openStream(ctx, st, obj)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	r := bufio.NewReaderSize(s, readAhead)
	first, err := firstByte(r, limit)
	switch {
	case err == io.EOF:
		return jsonNothing, nil
	case err == ErrTooLong:
		return 0, TooLong(limit, "%s: the white space at its start is", obj.URI)
	case err != nil:
		return 0, err
	case first == '[':
		return jsonArrayLayout, nil
	case first != '{':
		return 0, fault.Userf("%s: it begins with %q, but a JSON file of records begins with [ (array of objects) or { (JSON Lines)", obj.URI, string(first))
	}
	line, _, err := newLineReader(r, 0, limit, make([]byte, readAhead)).next()
	switch {
	case err == ErrTooLong:
		return 0, TooLong(limit, "%s: its first line is", obj.URI)
	case err != nil:
		return 0, err
	}
	scan := jsonScanner{data: line}
	if end := scan.value(0); end >= 0 && scan.space(end) == len(line) {
		return jsonLayoutLines, nil
	}
	return jsonObject, nil
}

// firstByte steps over a byte order mark and white space and returns the byte
// after it, which stays unread. More white space than limit is ErrTooLong.
func firstByte(r *bufio.Reader, limit int64) (byte, error) {
	if mark, err := r.Peek(len(byteOrderMark)); err == nil && bytes.Equal(mark, byteOrderMark) {
		r.Discard(len(byteOrderMark))
	}
	for range limit {
		c, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if !isSpace(c) {
			return c, r.UnreadByte()
		}
	}
	return 0, ErrTooLong
}

// jsonArray reads the elements of a top-level array, or one single object, in
// memory for one element. Row numbers and messages count elements from 0.
type jsonArray struct {
	ctx     context.Context
	uri     string
	objects *objectReader
	r       io.Reader
	single  bool
	limit   int64 // bytes of an element, and of white space on end

	buf  []byte // what is read and not yet done with
	from int    // buf[from:] is not done with
	off  int64  // place of buf[from] in the stream
	row  int64
	end  bool // r has ended
}

func (a *jsonArray) each(fn func(*Record) error) error {
	if err := a.open(); err != nil {
		return err
	}
	for {
		more, err := a.next()
		if err != nil || !more {
			return err
		}
		data, err := a.element()
		if err != nil {
			return err
		}
		if err := a.ctx.Err(); err != nil {
			return fmt.Errorf("reading %s: %w", a.uri, err)
		}
		rec := Record{Row: a.row, Lacks: a.objects.lacks}
		values, problem := a.objects.read(data)
		switch {
		case problem == "":
			rec.Values = values
		case a.objects.tooMany != nil:
			rec.Err = fault.Userf("%s: element %d (byte %d): %w", a.uri, a.row, a.off, a.objects.tooMany)
		default:
			rec.Err = fault.Userf("%s: element %d (byte %d) is %s: mend it or set bad_records.policy: skip", a.uri, a.row, a.off, problem)
		}
		if err := fn(&rec); err != nil {
			return err
		}
		a.skip(len(data))
		a.row++
	}
}

// open steps to the first element.
func (a *jsonArray) open() error {
	for len(a.buf) < len(byteOrderMark) && !a.end {
		if err := a.fill(); err != nil {
			return err
		}
	}
	if bytes.HasPrefix(a.buf, byteOrderMark) {
		a.skip(len(byteOrderMark))
	}
	_, err := a.token()
	if !a.single {
		a.skip(len("["))
	}
	return err
}

// next steps over what is between elements and says whether another follows.
func (a *jsonArray) next() (bool, error) {
	c, err := a.token()
	if err != nil {
		return false, err
	}
	switch {
	case a.single && a.row == 0:
		return true, nil
	case a.single:
		return false, a.finish()
	case c == ']':
		a.skip(len("]"))
		return false, a.finish()
	case a.row == 0 && c != 0:
		return true, nil
	case c == ',':
		a.skip(len(","))
		_, err := a.token()
		return true, err
	case c == 0 && a.end && a.from == len(a.buf):
		return false, fault.Userf("%s: the array is cut off at byte %d, after %d elements: copy the file again", a.uri, a.off, a.row)
	}
	return false, fault.Userf("%s: byte %d, after element %d: a comma or ] belongs here, not %q", a.uri, a.off, a.row-1, string(c))
}

// finish checks that nothing follows.
func (a *jsonArray) finish() error {
	c, err := a.token()
	if err == nil && a.from < len(a.buf) {
		return fault.Userf("%s: byte %d: only white space may follow the end of the JSON value, not %q", a.uri, a.off, string(c))
	}
	return err
}

// token steps over white space and returns the byte after it, 0 at the end.
func (a *jsonArray) token() (byte, error) {
	for start := a.off; ; {
		if a.off-start > a.limit {
			return 0, TooLong(a.limit, "%s: the white space from byte %d on is", a.uri, start)
		}
		for a.from < len(a.buf) {
			if !isSpace(a.buf[a.from]) {
				return a.buf[a.from], nil
			}
			a.skip(1)
		}
		if a.end {
			return 0, nil
		}
		if err := a.fill(); err != nil {
			return 0, err
		}
	}
}

// element returns the bytes of the value that begins here, which stay unread.
func (a *jsonArray) element() ([]byte, error) {
	for {
		scan := jsonScanner{data: a.buf[a.from:], nest: a.objects.nest[:0]}
		end := scan.value(0)
		a.objects.nest = scan.nest
		switch {
		case end >= 0 && (end < len(scan.data) || a.end):
			if int64(end) > a.limit {
				return nil, a.long()
			}
			return scan.data[:end], nil
		case end < 0 && (!scan.short() || a.end):
			return nil, fault.Userf("%s: element %d (byte %d) is not valid JSON: %s: mend the file, as what follows in an array cannot be read",
				a.uri, a.row, a.off, scan.problem())
		case int64(len(scan.data)) > a.limit:
			return nil, a.long()
		}
		if err := a.fill(); err != nil {
			return nil, err
		}
	}
}

func (a *jsonArray) long() error {
	return TooLong(a.limit, "%s: element %d (byte %d) is", a.uri, a.row, a.off)
}

func (a *jsonArray) skip(n int) {
	a.from += n
	a.off += int64(n)
}

// fill reads more: at least as much as is held, so that an element is scanned
// again only when what is known of it has doubled.
func (a *jsonArray) fill() error {
	if a.from > 0 {
		a.buf = a.buf[:copy(a.buf, a.buf[a.from:])]
		a.from = 0
	}
	want := max(min(2*len(a.buf), int(a.limit)), len(a.buf)) + readBytes
	for len(a.buf) < want && !a.end {
		if len(a.buf) == cap(a.buf) {
			a.buf = append(a.buf, make([]byte, len(a.buf))...)[:len(a.buf)]
		}
		n, err := a.r.Read(a.buf[len(a.buf):cap(a.buf)])
		a.buf = a.buf[:len(a.buf)+n]
		switch {
		case err == io.EOF:
			a.end = true
		case err != nil:
			return err
		}
	}
	return nil
}
