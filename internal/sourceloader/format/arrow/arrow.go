// Package arrow is the decoder of Arrow IPC files and streams.
//
// It owns the IPC format from the first message on: metadata, buffers,
// dictionaries. It never reads the buffers of a column that was not asked for.
package arrow

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fieldpath"
	"github.com/millrace-data/millrace/internal/formats"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/columnar"
	"github.com/millrace-data/millrace/internal/sourceloader/format/input"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Format reads Arrow IPC files and streams, told apart by their first bytes: the
// .arrow files of Hugging Face datasets are streams. A chunk is a record batch,
// a row its number in the file. Of a batch, only the buffers of the wanted
// columns are read, whole, and the dictionaries they need. In a stream, reaching
// batch k takes two small reads for each message before it; in a file, for each
// batch before it, to number the rows: with format.Indexes once, and not for each chunk.
//
// Columns are named as in Parquet: "meta.title", "messages[].content", and for
// the parts of a map "meta[].key" and "meta[].value", whatever its schema calls the two.
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
//   - a struct, and a map: String, its JSON text, without the fields that are null. So a list
//     of structs is what a list of objects is in a JSON file.
//   - unions, run-end encoded columns and intervals are refused when asked for.
//
// Extension types read as the type they are stored as; in a struct, arrow.json as the JSON that it is. The reader is our own:
// every offset that a file holds is checked before it is used.
type Format struct{}

// Name implements format.Format.
func (Format) Name() string { return formats.Arrow }

// Chunks implements format.Format. It reads the footer of a file, and the message
// headers of a stream.
func (Format) Chunks(ctx context.Context, st store.Store, obj store.Object, opt format.Options) (int, error) {
	return columnar.Chunks(ctx, st, obj, "Arrow", func(in *input.File) (int, error) {
		x, err := readIndex(in, obj)
		if err != nil {
			return 0, err
		}
		n, err := x.count(messages{in, obj.Size})
		if err == nil {
			opt.Indexes.Put(obj, x, x.bytes())
		}
		return n, err
	})
}

// Open implements format.Format.
func (Format) Open(ctx context.Context, st store.Store, obj store.Object, chunk int, from format.Position, opt format.Options) (_ format.Reader, err error) {
	in, err := input.Open(ctx, st, obj)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, in.Close())
		}
	}()
	defer columnar.Guard(&err, "Arrow", obj)
	b := &recordBatch{ctx: ctx, in: in, number: chunk, values: make([]format.Value, len(opt.Columns))}
	if err := b.open(opt); err != nil {
		return nil, fmt.Errorf("reading record batch %d of %s: %w", chunk, obj.URI, err)
	}
	b.i = min(max(0, int64(from)-b.firstRow), b.rows)
	return b, nil
}

// recordBatch reads the wanted columns of one batch row by row.
type recordBatch struct {
	ctx      context.Context
	in       *input.File
	number   int
	firstRow int64
	rows, i  int64
	root     *vector
	loaded   int64 // memory of buffers and metadata, in bytes
	columns  []*column
	types    []format.Type
	rec      format.Record
	values   []format.Value
}

func (b *recordBatch) open(opt format.Options) error {
	if b.number < 0 {
		return fault.Userf("record batches are numbered from 0")
	}
	file := messages{b.in, b.in.Object.Size}
	index, at, err := locate(file, b.in.Object, opt.Indexes, b.number)
	if err != nil {
		return err
	}
	b.firstRow, b.rows = at.firstRow, at.batch.rows()
	loader := &loader{ctx: b.ctx, file: file, wanted: map[*field]bool{}, dictionaries: at.dictionaries, loaded: map[*field][]*vector{}}
	for _, name := range opt.Columns {
		path, err := fieldpath.Parse(name)
		if err != nil {
			return err
		}
		c := &column{name: name, objects: columnar.NewObjects(opt.ElementLimit(), opt.RecordLimit())}
		if c.path, err = index.root.resolve(name, path); err != nil {
			return err
		}
		loader.want(&c.path)
		b.columns, b.types = append(b.columns, c), append(b.types, c.path.typ())
	}
	if len(opt.Columns) > 0 {
		b.root, err = loader.load(&at.batch, at.batch.header, index.root)
	}
	b.loaded = loader.held
	return err
}

// locate finds a batch by the index of its file, if one is kept that agrees with what the file says of the batch, else by
// a new one.
func locate(file messages, obj store.Object, indexes *format.Indexes, batch int) (*index, *found, error) {
	if x, ok := indexes.Get(obj).(*index); ok {
		before := x.bytes()
		at, err := x.find(file, batch)
		if after := x.bytes(); err == nil && after != before {
			indexes.Put(obj, x, after)
		}
		if fault.ClassOf(err) != fault.User {
			return x, at, err
		}
		indexes.Forget(obj)
	}
	x, err := readIndex(file.h, obj)
	if err != nil {
		return nil, nil, err
	}
	at, err := x.find(file, batch)
	if err == nil {
		indexes.Put(obj, x, x.bytes())
	}
	return x, at, err
}

// Next implements format.Reader.
func (b *recordBatch) Next() (rec *format.Record, err error) {
	defer columnar.Guard(&err, "Arrow", b.in.Object)
	if b.i == b.rows {
		return nil, io.EOF
	}
	if err := b.next(); err != nil {
		return nil, fmt.Errorf("reading record batch %d of %s: %w", b.number, b.in.Object.URI, err)
	}
	return &b.rec, nil
}

// next reads the next row.
func (b *recordBatch) next() error {
	if err := b.ctx.Err(); err != nil {
		return err
	}
	b.rec = format.Record{Row: b.firstRow + b.i, Values: b.values, Types: b.types}
	for i, c := range b.columns {
		v, bad, err := c.row(b.root, int(b.i))
		if err != nil {
			return columnar.ColumnError(c.name, err)
		}
		if bad != nil && b.rec.Err == nil {
			b.rec.Err = fmt.Errorf("row %d of %s: column %q: %w", b.rec.Row, b.in.Object.URI, c.name, bad)
		}
		b.values[i] = v
	}
	if b.rec.Err != nil {
		b.rec.Values = nil
	}
	b.i++
	return nil
}

// Held implements format.Reader.
func (b *recordBatch) Held() int64 {
	held := b.loaded
	for _, c := range b.columns {
		held += int64(format.ValueBytes*cap(c.list)+4*cap(c.tokens)) + c.objects.Held()
	}
	return held
}

// Close implements format.Reader.
func (b *recordBatch) Close() error {
	b.root, b.columns, b.loaded = nil, nil, 0
	return b.in.Close()
}
