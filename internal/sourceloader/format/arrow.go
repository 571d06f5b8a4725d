package format

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fieldpath"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Arrow reads Arrow IPC files and streams, told apart by their first bytes: the
// .arrow files of Hugging Face datasets are streams. A chunk is a record batch,
// a row its number in the file. Of a batch, only the buffers of the wanted
// columns are read, whole, and the dictionaries they need. In a stream, reaching
// batch k takes two small reads for each message before it; in a file, for each
// batch before it, to number the rows.
//
// Columns are named as in Parquet: "meta.title", "messages[].content", and for
// a map "meta[].key" and "meta[].value", whatever its schema calls the two.
//
//   - utf8, large_utf8, utf8_view: String; invalid UTF-8 is the record's error.
//   - binary of all kinds, fixed_size_binary: Bytes.
//   - integers: Int; an unsigned one above 2^63-1 is the record's error.
//   - date, time, timestamp, duration: Int, in the file's own unit.
//   - float16, float32, float64: Float. bool: Bool. null: Null.
//   - decimals: String, all digits written out ("-12.50").
//   - dictionary-encoded: as the values of the dictionary.
//   - a list of integers named without its []: Tokens; an element that is null
//     or beyond 32 bits is the record's error. With [] it is a List.
//   - any other list (large, fixed-size, view), with or without its []: List.
//   - unions, run-end encoded columns and intervals are refused when asked for.
//
// Extension types read as the type they are stored as. The reader is our own:
// every offset that a file holds is checked before it is used.
type Arrow struct{}

var _ Format = Arrow{}

// Name implements Format.
func (Arrow) Name() string { return "arrow" }

// Accepts implements Filter: of a folder, .arrow, .ipc, .arrows and .feather
// files are read.
func (Arrow) Accepts(uri string) bool { return endsIn(uri, ".arrow", ".arrows", ".ipc", ".feather") }

// Chunks implements Format. It reads the footer of a file, and the message
// headers of a stream.
func (Arrow) Chunks(ctx context.Context, st store.Store, obj store.Object, _ Options) (n int, err error) {
	defer guard(&err, "Arrow", obj, new(bool))
	in, err := openInput(ctx, st, obj)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	index, err := readArrowIndex(in, obj, -1)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", obj.URI, err)
	}
	return index.batches, nil
}

// Read implements Format.
func (Arrow) Read(ctx context.Context, st store.Store, obj store.Object, chunk int, opt Options, fn func(*Record) error) (err error) {
	inCallback := false
	defer guard(&err, "Arrow", obj, &inCallback)
	in, err := openInput(ctx, st, obj)
	if err != nil {
		return err
	}
	defer in.Close()
	b, err := openBatch(ctx, in, obj, chunk, opt.Columns, opt.maxElements())
	if err != nil {
		return fmt.Errorf("reading record batch %d of %s: %w", chunk, obj.URI, err)
	}
	return eachRow(fmt.Sprintf("record batch %d of %s", chunk, obj.URI), b.next, &inCallback, fn)
}

// arrowBatch reads the wanted columns of one batch row by row.
type arrowBatch struct {
	ctx      context.Context
	uri      string
	firstRow int64
	rows, i  int64
	root     *arrowArray
	columns  []*arrowColumn
	rec      Record
	values   []Value
}

func openBatch(ctx context.Context, in *input, obj store.Object, batch int, columns []string, limit int) (*arrowBatch, error) {
	if batch < 0 {
		return nil, fault.Userf("record batches are numbered from 0")
	}
	index, err := readArrowIndex(in, obj, batch)
	if err != nil {
		return nil, err
	}
	b := &arrowBatch{ctx: ctx, uri: obj.URI, firstRow: index.firstRow, rows: index.batch.rows(), values: make([]Value, len(columns))}
	loader := &arrowLoader{ctx: ctx, h: in, wanted: map[*arrowField]bool{}, dictionaries: index.dictionaries, loaded: map[*arrowField][]*arrowArray{}}
	for _, name := range columns {
		path, err := fieldpath.Parse(name)
		if err != nil {
			return nil, err
		}
		c := &arrowColumn{name: name, limit: limit}
		if c.path, err = index.root.resolve(name, path); err != nil {
			return nil, err
		}
		loader.wanted[c.path.leaf] = true
		for _, f := range c.path.fields {
			loader.wanted[f] = true
		}
		b.columns = append(b.columns, c)
	}
	if len(columns) > 0 {
		b.root, err = loader.load(&index.batch, index.batch.header, index.root)
	}
	return b, err
}

// next reads the next row; nil at the end.
func (b *arrowBatch) next() (*Record, error) {
	if b.i == b.rows {
		return nil, nil
	}
	if err := b.ctx.Err(); err != nil {
		return nil, err
	}
	b.rec = Record{Row: b.firstRow + b.i, Values: b.values}
	for i, c := range b.columns {
		v, bad, err := c.row(b.root, int(b.i))
		if err != nil {
			return nil, columnError(c.name, err)
		}
		if bad != nil && b.rec.Err == nil {
			b.rec.Err = fmt.Errorf("row %d of %s: column %q: %w", b.rec.Row, b.uri, c.name, bad)
		}
		b.values[i] = v
	}
	if b.rec.Err != nil {
		b.rec.Values = nil
	}
	b.i++
	return &b.rec, nil
}
