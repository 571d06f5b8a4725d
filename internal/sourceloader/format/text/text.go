// Package text is the decoder of plain text: a file is one record.
//
// It owns the meaning of the two columns that such a file has. It never splits
// a text: documents in one file are JSON Lines.
package text

import (
	"context"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/formats"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/input"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Format reads a file as one record with the columns "text", its content byte
// for byte, and "path", its URI. It is one chunk, also when it is empty. A name
// that ends in .gz or .zst is decompressed. Content that is not UTF-8 or longer
// than Options.MaxRecord is a bad record.
type Format struct{}

var _ format.Rows = Format{}

// Name implements format.Format.
func (Format) Name() string { return formats.Text }

// RowsBelow implements format.Rows.
func (Format) RowsBelow(store.Object) int64 { return 1 }

// InBytes implements format.Rows.
func (Format) InBytes() bool { return false }

// Chunks implements format.Format.
func (Format) Chunks(context.Context, store.Store, store.Object, format.Options) (int, error) {
	return 1, nil
}

// Open implements format.Format. The file is read by Next, and only if the column
// "text" is asked for.
func (Format) Open(ctx context.Context, st store.Store, obj store.Object, _ int, from format.Position, opt format.Options) (format.Reader, error) {
	if err := format.OnlyColumns(obj, opt.Columns, "text", "path"); err != nil {
		return nil, err
	}
	return &reader{ctx: ctx, st: st, obj: obj, opt: opt, done: from > 0}, nil
}

type reader struct {
	ctx  context.Context
	st   store.Store
	obj  store.Object
	opt  format.Options
	done bool
	text []byte
}

// Next implements format.Reader.
func (r *reader) Next() (*format.Record, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", r.obj.URI, err)
	}
	if r.done {
		return nil, io.EOF
	}
	r.done = true
	rec := &format.Record{}
	if slices.Contains(r.opt.Columns, "text") {
		var err error
		if rec.Err, err = r.read(); err != nil {
			return nil, err
		}
	}
	for _, column := range r.opt.Columns {
		if rec.Err != nil {
			break
		}
		value := format.Value{Kind: format.String, Bytes: r.text}
		if column == "path" {
			value.Bytes = []byte(r.obj.URI)
		}
		rec.Values = append(rec.Values, value)
	}
	return rec, nil
}

// read reads the text, and says what is wrong with it.
func (r *reader) read() (bad, err error) {
	s, err := input.OpenStream(r.ctx, r.st, r.obj)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	limit := r.opt.RecordLimit()
	// One byte more than the file has, so that its end is seen without growing.
	buf := make([]byte, 0, min(r.obj.Size, limit)+1)
	r.text, err = input.ReadAll(buf, s, limit)
	switch {
	case err == format.ErrTooLong:
		return format.TooLong(limit, "%s: the text is", r.obj.URI), nil
	case err != nil:
		return nil, err
	case !utf8.Valid(r.text):
		return fault.Userf("%s: byte %d is not valid UTF-8: convert the file to UTF-8", r.obj.URI, format.InvalidUTF8(r.text)), nil
	}
	return nil, nil
}

// Held implements format.Reader.
func (r *reader) Held() int64 { return int64(cap(r.text)) }

// Close implements format.Reader.
func (r *reader) Close() error {
	r.text = nil
	return nil
}
