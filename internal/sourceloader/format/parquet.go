package format

import (
	"context"
	"fmt"
	"io"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Parquet reads Apache Parquet files: a chunk is a row group, a row its number
// in the file. Only the footer and the pages of the wanted columns are read,
// in ranges of up to 1 MiB, and one page of each column is in memory at a time.
//
// Columns are named as the data looks to its writer, not as Parquet nests it:
// the groups that make up a list or map are left out, so a list<struct<role,
// content>> is "messages[].content", whichever of the three list encodings the
// writer chose, and a map "meta[].key" and "meta[].value".
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
//
// The reader is our own from the footer up, so that a damaged file can neither
// panic nor allocate what its headers merely claim: pages above 256 MiB are
// refused, and so are row groups above 2^31 rows. The codecs are those of the Go ecosystem.
type Parquet struct{}

var _ Format = Parquet{}

// Name implements Format.
func (Parquet) Name() string { return "parquet" }

// Accepts implements Filter: of a folder, .parquet and .parq files are read.
func (Parquet) Accepts(uri string) bool { return endsIn(uri, ".parquet", ".parq") }

// Chunks implements Format. It reads the footer.
func (Parquet) Chunks(ctx context.Context, st store.Store, obj store.Object, _ Options) (n int, err error) {
	defer guard(&err, "Parquet", obj, new(bool))
	in, err := openInput(ctx, st, obj)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	f, err := readParquetFooter(in, obj, -1)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", obj.URI, err)
	}
	return f.groups, nil
}

// Read implements Format.
func (Parquet) Read(ctx context.Context, st store.Store, obj store.Object, chunk int, opt Options, fn func(*Record) error) (err error) {
	inCallback := false
	defer guard(&err, "Parquet", obj, &inCallback)
	in, err := openInput(ctx, st, obj)
	if err != nil {
		return err
	}
	defer in.Close()
	g, err := openRowGroup(ctx, in, obj, chunk, opt.Columns, opt.maxElements())
	if err != nil {
		return fmt.Errorf("reading row group %d of %s: %w", chunk, obj.URI, err)
	}
	if err := eachRow(fmt.Sprintf("row group %d of %s", chunk, obj.URI), g.next, &inCallback, fn); err != nil {
		return err
	}
	g.release()
	return nil
}

// eachRow gives fn every row that next returns, nil being the end of this part of a
// file. inCallback is set while fn runs: what it does is its own.
func eachRow(part string, next func() (*Record, error), inCallback *bool, fn func(*Record) error) error {
	for {
		rec, err := next()
		switch {
		case err != nil:
			return fmt.Errorf("reading %s: %w", part, err)
		case rec == nil:
			return nil
		}
		*inCallback = true
		if err := fn(rec); err != nil {
			return err
		}
		*inCallback = false
	}
}

// guard turns a panic of the reader, which a codec may raise on damaged input,
// into the file's error. A panic of the callback goes on.
func guard(err *error, kind string, obj store.Object, inCallback *bool) {
	if *inCallback {
		return
	}
	if p := recover(); p != nil {
		*err = fault.Userf("the %s reader cannot read %s, which is damaged: %v", kind, obj.URI, p)
	}
}

// rowGroup merges the wanted columns of one row group row by row.
type rowGroup struct {
	ctx      context.Context
	uri      string
	row, end int64 // of the file
	columns  []*parquetColumn
	rec      Record
	values   []Value
}

func openRowGroup(ctx context.Context, r io.ReaderAt, obj store.Object, group int, columns []string, limit int) (*rowGroup, error) {
	if group < 0 {
		return nil, fault.Userf("row groups are numbered from 0")
	}
	f, err := readParquetFooter(r, obj, group)
	if err != nil {
		return nil, err
	}
	root, err := schemaTree(f.elements)
	if err != nil {
		return nil, err
	}
	g := &rowGroup{ctx: ctx, uri: obj.URI, row: f.firstRow, end: f.firstRow + f.rows, values: make([]Value, len(columns))}
	for _, name := range columns {
		c, err := newParquetColumn(ctx, r, f, root, name, limit)
		if err != nil {
			return nil, columnError(name, err)
		}
		g.columns = append(g.columns, c)
	}
	return g, nil
}

func columnError(name string, err error) error { return fmt.Errorf("reading column %q: %w", name, err) }

// release is for who is done with all rows and their values.
func (g *rowGroup) release() {
	for _, c := range g.columns {
		c.release()
	}
}

// next reads the next row; nil at the end.
func (g *rowGroup) next() (*Record, error) {
	if g.row == g.end {
		return nil, g.finish()
	}
	if err := g.ctx.Err(); err != nil {
		return nil, err
	}
	g.rec = Record{Row: g.row, Values: g.values}
	for i, c := range g.columns {
		v, bad, err := c.next()
		if err != nil {
			return nil, columnError(c.name, err)
		}
		if bad != nil && g.rec.Err == nil {
			g.rec.Err = fmt.Errorf("row %d of %s: column %q: %w", g.row, g.uri, c.name, bad)
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
	for _, c := range g.columns {
		if err := c.finish(); err != nil {
			return columnError(c.name, err)
		}
	}
	return nil
}
