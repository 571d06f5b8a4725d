package format

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Text reads a file as one record with the columns "text", its content byte
// for byte, and "path", its URI. It is one chunk, also when it is empty. A name
// that ends in .gz or .zst is decompressed. Content that is not UTF-8 or longer
// than Options.MaxRecord is a bad record.
type Text struct{}

var _ Format = Text{}

// Name implements Format.
func (Text) Name() string { return "text" }

// Chunks implements Format.
func (Text) Chunks(context.Context, store.Store, store.Object, Options) (int, error) { return 1, nil }

// Read implements Format. It reads the file only if the column "text" is asked for.
func (Text) Read(ctx context.Context, st store.Store, obj store.Object, _ int, opt Options, fn func(*Record) error) error {
	if err := onlyColumns(obj, opt.Columns, "text", "path"); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("reading %s: %w", obj.URI, err)
	}
	var rec Record
	var text []byte
	if slices.Contains(opt.Columns, "text") {
		var err error
		text, rec.Err, err = readText(ctx, st, obj, opt.maxRecord())
		if err != nil {
			return err
		}
	}
	for _, column := range opt.Columns {
		if rec.Err != nil {
			break
		}
		value := Value{Kind: String, Bytes: text}
		if column == "path" {
			value.Bytes = []byte(obj.URI)
		}
		rec.Values = append(rec.Values, value)
	}
	return fn(&rec)
}

func readText(ctx context.Context, st store.Store, obj store.Object, limit int64) (text []byte, bad, err error) {
	s, err := openStream(ctx, st, obj)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	// One byte more than the file has, so that its end is seen without growing.
	buf := make([]byte, 0, min(obj.Size, limit)+1)
	text, err = readAll(buf, s, limit)
	switch {
	case err == ErrTooLong:
		return nil, TooLong(limit, "%s: the text is", obj.URI), nil
	case err != nil:
		return nil, nil, err
	case !utf8.Valid(text):
		return nil, fault.Userf("%s: byte %d is not valid UTF-8: convert the file to UTF-8", obj.URI, invalidUTF8(text)), nil
	}
	return text, nil, nil
}

// onlyColumns checks the columns asked for against those the format has.
func onlyColumns(obj store.Object, asked []string, has ...string) error {
	for _, column := range asked {
		if !slices.Contains(has, column) {
			return fmt.Errorf("reading %s: %w", obj.URI, noSuchColumn(column, has))
		}
	}
	return nil
}
