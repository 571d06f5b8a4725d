// Package parquet is the decoder of Apache Parquet files.
//
// It owns Parquet from the footer up: metadata, pages, encodings, levels. It
// never reads a column that was not asked for, nor a byte outside its pages.
package parquet

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/formats"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/columnar"
	"github.com/millrace-data/millrace/internal/sourceloader/format/input"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Format reads Apache Parquet files: a chunk is a row group, a row its number
// in the file. Only the footer and the pages of the wanted columns are read,
// in ranges of up to 1 MiB, and one page of each column is in memory at a time. With format.Indexes the
// footer is read once, and then of each row group the part that is its own.
//
// Columns are named as the data looks to its writer, not as Parquet nests it:
// the groups that make up a list or map are left out, so a list<struct<role,
// content>> is "messages[].content", whichever of the three list encodings the
// writer chose, and the parts of a map "meta[].key" and "meta[].value".
//
//   - STRING, ENUM, JSON: String; invalid UTF-8 is the record's error.
//   - BYTE_ARRAY without annotation: String if the value is valid UTF-8, else
//     Bytes, value by value (Impala and old Spark write text that way).
//   - other binary (BSON, UUID, geometry, intervals): Bytes.
//   - integers of all widths: Int; an unsigned one above 2^63-1 is the record's error.
//   - DATE, TIME, TIMESTAMP: Int, in the file's own unit (days, ms, us, ns).
//   - INT96: Int, nanoseconds since 1970.
//   - DECIMAL: String, all digits written out ("-12.50").
//   - FLOAT, DOUBLE, FLOAT16: Float. BOOLEAN: Bool.
//   - a list of integers named without its [] ("tokens"): Tokens; an element
//     that is null or beyond 32 bits is the record's error. With [] it is a List.
//   - any other list, with or without its []: List.
//   - a group of fields, and a map: String, its JSON text, without the fields that are null.
//     So a list of groups is what a list of objects is in a JSON file.
//
// The reader is our own from the footer up, so that a damaged file can neither
// panic nor allocate what its headers merely claim: pages above 256 MiB are
// refused, and so are row groups above 2^31 rows. The codecs are those of the Go ecosystem.
type Format struct{}

// Name implements format.Format.
func (Format) Name() string { return formats.Parquet }

// Chunks implements format.Format. It reads the footer.
func (Format) Chunks(ctx context.Context, st store.Store, obj store.Object, opt format.Options) (int, error) {
	return columnar.Chunks(ctx, st, obj, "Parquet", func(in *input.File) (int, error) {
		x, _, err := readIndex(in, obj)
		if err != nil {
			return 0, err
		}
		opt.Indexes.Put(obj, x, x.held())
		return x.groups.Len(), nil
	})
}

// Open implements format.Format. The rows before from are decoded and left out.
func (Format) Open(ctx context.Context, st store.Store, obj store.Object, chunk int, from format.Position, opt format.Options) (_ format.Reader, err error) {
	in, err := input.Open(ctx, st, obj)
	if err != nil {
		return nil, err
	}
	g := &rowGroup{ctx: ctx, in: in, number: chunk, from: int64(from), names: opt.Columns, values: make([]format.Value, len(opt.Columns))}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	defer columnar.Guard(&err, "Parquet", obj)
	if err := g.open(opt.Indexes, limits{opt.ElementLimit(), opt.RecordLimit()}); err != nil {
		return nil, fmt.Errorf("reading row group %d of %s: %w", chunk, obj.URI, err)
	}
	return g, nil
}

// rowGroup merges the wanted columns of one row group row by row.
type rowGroup struct {
	ctx      context.Context
	in       *input.File
	number   int
	from     int64 // rows before it are left out
	row, end int64 // of the file
	footer   int64 // memory of the metadata, in bytes
	names    []string
	columns  []reader
	types    []format.Type
	rec      format.Record
	values   []format.Value
}

// footerOf returns what is needed of the metadata of a file to read a row group, by the file's index if one is kept that
// agrees with what the file says of the row group.
func footerOf(in io.ReaderAt, obj store.Object, indexes *format.Indexes, group int) (*footer, error) {
	if x, ok := indexes.Get(obj).(*index); ok {
		if f, err := x.group(in, group, nil); fault.ClassOf(err) != fault.User {
			return f, err
		}
		indexes.Forget(obj)
	}
	x, footer, err := readIndex(in, obj)
	if err != nil {
		return nil, err
	}
	indexes.Put(obj, x, x.held())
	return x.group(in, group, footer)
}

func (g *rowGroup) open(indexes *format.Indexes, limits limits) error {
	if g.number < 0 {
		return fault.Userf("row groups are numbered from 0")
	}
	f, err := footerOf(g.in, g.in.Object, indexes, g.number)
	if err != nil {
		return err
	}
	root, err := schemaTree(f.elements)
	if err != nil {
		return err
	}
	g.row, g.end, g.footer = f.firstRow, f.firstRow+f.rows, f.held()
	for _, name := range g.names {
		c, typ, err := newReader(g.ctx, g.in, f, root, name, limits)
		if err != nil {
			return columnar.ColumnError(name, err)
		}
		g.columns, g.types = append(g.columns, c), append(g.types, typ)
	}
	return nil
}

// Next implements format.Reader.
func (g *rowGroup) Next() (rec *format.Record, err error) {
	defer columnar.Guard(&err, "Parquet", g.in.Object)
	for {
		rec, err := g.next()
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading row group %d of %s: %w", g.number, g.in.Object.URI, err)
		case rec == nil:
			return nil, io.EOF
		case rec.Row >= g.from:
			return rec, nil
		}
	}
}

// next reads the next row; nil at the end.
func (g *rowGroup) next() (*format.Record, error) {
	if g.row == g.end {
		return nil, g.finish()
	}
	if err := g.ctx.Err(); err != nil {
		return nil, err
	}
	g.rec = format.Record{Row: g.row, Values: g.values, Types: g.types}
	for i, c := range g.columns {
		v, bad, err := c.next()
		if err != nil {
			return nil, columnar.ColumnError(g.names[i], err)
		}
		if bad != nil && g.rec.Err == nil {
			g.rec.Err = fmt.Errorf("row %d of %s: column %q: %w", g.row, g.in.Object.URI, g.names[i], bad)
		}
		g.values[i] = v
	}
	if g.rec.Err != nil {
		g.rec.Values = nil
	}
	g.row++
	return &g.rec, nil
}

func (g *rowGroup) finish() error {
	for i, c := range g.columns {
		if err := c.finish(); err != nil {
			return columnar.ColumnError(g.names[i], err)
		}
	}
	return nil
}

// Held implements format.Reader.
func (g *rowGroup) Held() int64 {
	held := g.footer
	for _, c := range g.columns {
		held += c.held()
	}
	return held
}

// Close implements format.Reader.
func (g *rowGroup) Close() error {
	for _, c := range g.columns {
		c.release()
	}
	g.columns = nil
	return g.in.Close()
}
