// Package json is the decoder of JSON: JSON Lines, arrays of objects and single
// objects.
//
// It owns where one record ends and the next begins, and the numbers of lines and
// elements in messages. What an object's fields mean is in package jsonobject.
package json

import (
	"bufio"
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

// Format reads .json files, whatever of three things they hold: one array of
// objects (an element is a record, and the array one chunk, streamed), JSON
// Lines (read as by Lines) or one single object (one record). The first
// character that is not white space tells the array; a first line that is a
// valid object tells JSON Lines. An element that is valid JSON but not an object is
// a bad record; a syntax error in an array ends the file, as nothing says where
// the next element begins.
type Format struct{}

// Name implements format.Format.
func (Format) Name() string { return formats.JSON }

// Chunks implements format.Format. It reads up to the end of the first line at most.
func (Format) Chunks(ctx context.Context, st store.Store, obj store.Object, opt format.Options) (int, error) {
	if formats.Codec(obj.URI) != "" {
		return 1, nil
	}
	layout, err := layoutOf(ctx, st, obj, opt.RecordLimit())
	switch {
	case err != nil || layout == layoutNothing:
		return 0, err
	case layout == layoutLines:
		return Lines{}.Chunks(ctx, st, obj, opt)
	}
	return 1, nil
}

// Open implements format.Format.
func (Format) Open(ctx context.Context, st store.Store, obj store.Object, chunk int, from format.Position, opt format.Options) (format.Reader, error) {
	layout, err := layoutOf(ctx, st, obj, opt.RecordLimit())
	switch {
	case err != nil:
		return nil, err
	case layout == layoutLines:
		return Lines{}.Open(ctx, st, obj, chunk, from, opt)
	}
	objects, err := jsonobject.New(opt.Columns, opt.ElementLimit())
	if err != nil {
		return nil, err
	}
	s, err := input.OpenStream(ctx, st, obj)
	if err != nil {
		return nil, err
	}
	return &elements{
		ctx: ctx, uri: obj.URI, objects: objects, lacks: objects.Lacks, stream: s, buf: make([]byte, 0, input.ReadBytes),
		layout: layout, limit: opt.RecordLimit(), first: int64(from), row: -1,
	}, nil
}

type layout int

const (
	layoutNothing layout = iota
	layoutArray
	layoutLines
	layoutObject
)

// layoutOf looks at the start of a file to tell what it holds.
func layoutOf(ctx context.Context, st store.Store, obj store.Object, limit int64) (layout, error) {
	s, err := input.OpenStream(ctx, st, obj)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	r := bufio.NewReaderSize(s, input.ReadAhead)
	first, err := firstByte(r, limit)
	switch {
	case err == io.EOF:
		return layoutNothing, nil
	case err == format.ErrTooLong:
		return 0, format.TooLong(limit, "%s: the white space at its start is", obj.URI)
	case err != nil:
		return 0, err
	case first == '[':
		return layoutArray, nil
	case first != '{':
		return 0, fault.Userf("%s: it begins with %q, but a JSON file of records begins with [ (array of objects) or { (JSON Lines)", obj.URI, string(first))
	}
	line, _, err := newLineReader(r, 0, limit, make([]byte, input.ReadAhead)).next()
	switch {
	case err == format.ErrTooLong:
		return 0, format.TooLong(limit, "%s: its first line is", obj.URI)
	case err != nil:
		return 0, err
	}
	if jsonobject.IsValue(line) {
		return layoutLines, nil
	}
	return layoutObject, nil
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
		if !jsonobject.IsSpace(c) {
			return c, r.UnreadByte()
		}
	}
	return 0, format.ErrTooLong
}

// elements reads the elements of a top-level array, or one single object, in
// memory for one element. Row numbers and messages count elements from 0.
type elements struct {
	ctx     context.Context
	uri     string
	objects *jsonobject.Reader
	lacks   func(int) (string, []string)
	stream  *input.Stream
	layout  layout
	limit   int64 // bytes of an element, and of white space in a row
	first   int64 // elements before it are passed over
	rec     format.Record

	buf  []byte // what is read and not yet done with
	from int    // buf[from:] is not done with
	off  int64  // place of buf[from] in the stream
	row  int64  // of the element here, -1 before the first
	size int    // bytes of that element, which stay in buf while it is the record
	end  bool   // the stream has ended
}

// Next implements format.Reader.
func (a *elements) Next() (*format.Record, error) {
	if err := a.ctx.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", a.uri, err)
	}
	if a.layout == layoutNothing {
		return nil, io.EOF
	}
	for {
		data, err := a.advance()
		if err != nil {
			return nil, err
		}
		if a.row < a.first {
			continue
		}
		a.rec = format.Record{Row: a.row, Lacks: a.lacks}
		values, problem := a.objects.Read(data)
		switch field := a.objects.Field(); {
		case problem == "":
			a.rec.Values = values
		case field != nil:
			a.rec.Err = fault.Userf("%s: element %d (byte %d): %w", a.uri, a.row, a.off, field)
		default:
			a.rec.Err = fault.Userf("%s: element %d (byte %d) is %s: fix it", a.uri, a.row, a.off, problem)
		}
		return &a.rec, nil
	}
}

// advance steps over the element here and returns the next one.
func (a *elements) advance() ([]byte, error) {
	if a.row < 0 {
		if err := a.open(); err != nil {
			return nil, err
		}
	}
	a.skip(a.size)
	a.size = 0
	a.row++
	more, err := a.next()
	if err != nil {
		return nil, err
	}
	if !more {
		return nil, io.EOF
	}
	data, err := a.element()
	a.size = len(data)
	return data, err
}

// Held implements format.Reader.
func (a *elements) Held() int64 { return int64(cap(a.buf)) + a.objects.Held() + a.stream.Held() }

// Close implements format.Reader.
func (a *elements) Close() error {
	a.objects.Release()
	return a.stream.Close()
}

// open steps to the first element.
func (a *elements) open() error {
	for len(a.buf) < len(byteOrderMark) && !a.end {
		if err := a.fill(); err != nil {
			return err
		}
	}
	if bytes.HasPrefix(a.buf, byteOrderMark) {
		a.skip(len(byteOrderMark))
	}
	_, err := a.token()
	if a.layout == layoutArray {
		a.skip(len("["))
	}
	return err
}

// next steps over what is between elements and says whether another follows.
func (a *elements) next() (bool, error) {
	c, err := a.token()
	if err != nil {
		return false, err
	}
	switch {
	case a.layout == layoutObject && a.row == 0:
		return true, nil
	case a.layout == layoutObject:
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
	return false, fault.Userf("%s: byte %d, after element %d: a comma or ] is expected here, not %q", a.uri, a.off, a.row-1, string(c))
}

// finish checks that nothing follows.
func (a *elements) finish() error {
	c, err := a.token()
	if err == nil && a.from < len(a.buf) {
		return fault.Userf("%s: byte %d: only white space may follow the end of the JSON value, not %q%s", a.uri, a.off, string(c), a.orLines())
	}
	return err
}

// token steps over white space and returns the byte after it, 0 at the end.
func (a *elements) token() (byte, error) {
	for start := a.off; ; {
		if a.off-start > a.limit {
			return 0, format.TooLong(a.limit, "%s: the white space from byte %d on is", a.uri, start)
		}
		for a.from < len(a.buf) {
			if !jsonobject.IsSpace(a.buf[a.from]) {
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
func (a *elements) element() ([]byte, error) {
	for {
		data := a.buf[a.from:]
		end, short, problem := a.objects.Scan(data)
		switch {
		case end >= 0 && (end < len(data) || a.end):
			if int64(end) > a.limit {
				return nil, a.long()
			}
			return data[:end], nil
		case end < 0 && (!short || a.end):
			return nil, a.broken(problem)
		case int64(len(data)) > a.limit:
			return nil, a.long()
		}
		if err := a.fill(); err != nil {
			return nil, err
		}
	}
}

// broken is the error of a value that ends the file.
func (a *elements) broken(problem string) error {
	if a.layout == layoutObject {
		return fault.Userf("%s: the object at byte %d is not valid JSON: %s: fix the file%s", a.uri, a.off, problem, a.orLines())
	}
	return fault.Userf("%s: element %d (byte %d) is not valid JSON: %s: fix the file, as what follows in an array cannot be read",
		a.uri, a.row, a.off, problem)
}

// orLines is what to do with a file that is taken for one object, and may be meant as lines.
func (a *elements) orLines() string {
	if a.layout != layoutObject {
		return ""
	}
	return "; if it has an object on each line, set the source's format: jsonl, which can skip a bad one"
}

func (a *elements) long() error {
	return format.TooLong(a.limit, "%s: element %d (byte %d) is", a.uri, a.row, a.off)
}

func (a *elements) skip(n int) {
	a.from += n
	a.off += int64(n)
}

// fill reads more: at least as much as is held, so that an element is scanned
// again only when what is known of it has doubled.
func (a *elements) fill() error {
	if a.from > 0 {
		a.buf = a.buf[:copy(a.buf, a.buf[a.from:])]
		a.from = 0
	}
	want := max(min(2*len(a.buf), int(a.limit)), len(a.buf)) + input.ReadBytes
	for len(a.buf) < want && !a.end {
		if len(a.buf) == cap(a.buf) {
			a.buf = append(a.buf, make([]byte, len(a.buf))...)[:len(a.buf)]
		}
		n, err := a.stream.Read(a.buf[len(a.buf):cap(a.buf)])
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
