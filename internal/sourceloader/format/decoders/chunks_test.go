package decoders_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	arrowlib "github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	pqgo "github.com/parquet-go/parquet-go"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/decoders"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// manyChunks are files of n chunks, of two rows each.
func manyChunks(t *testing.T, n int) map[string][]byte {
	return map[string][]byte{
		"a.parquet": manyGroups(t, n), "stream.arrow": manyBatches(t, n, false, nil), "file.arrow": manyBatches(t, n, true, nil),
		"words.arrow": manyBatches(t, n, false, memory.DefaultAllocator),
	}
}

type chunkRow struct {
	Text string `parquet:"text"`
}

func manyGroups(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pqgo.NewGenericWriter[chunkRow](&b)
	for i := range n {
		if _, err := w.Write([]chunkRow{{fmt.Sprint(2 * i)}, {fmt.Sprint(2*i + 1)}}); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// manyBatches is an Arrow file or stream of n batches. With words the text is dictionary-encoded, by another dictionary in each
// batch.
func manyBatches(t *testing.T, n int, file bool, words memory.Allocator) []byte {
	t.Helper()
	var typ arrowlib.DataType = arrowlib.BinaryTypes.String
	if words != nil {
		typ = &arrowlib.DictionaryType{IndexType: arrowlib.PrimitiveTypes.Int32, ValueType: typ}
	}
	schema := arrowlib.NewSchema([]arrowlib.Field{{Name: "text", Type: typ}}, nil)
	var b bytes.Buffer
	var w interface {
		Write(arrowlib.RecordBatch) error
		io.Closer
	} = ipc.NewWriter(&b, ipc.WithSchema(schema))
	if file {
		var err error
		if w, err = ipc.NewFileWriter(&b, ipc.WithSchema(schema)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		column := array.NewBuilder(memory.DefaultAllocator, typ)
		for k := range 2 {
			if err := column.AppendValueFromString(fmt.Sprint(2*i + k)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Write(array.NewRecordBatch(schema, []arrowlib.Array{column.NewArray()}, 2)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestManyChunks: opening a chunk takes what that chunk takes, however many there are before it.
func TestManyChunks(t *testing.T) {
	const n = 1500
	for name, data := range manyChunks(t, n) {
		st, obj := stored(t, map[string][]byte{"/" + name: data}, "/"+name)
		metered := store.NewMetered(st)
		f, err := decoders.ByPath(name)
		if err != nil {
			t.Fatal(err)
		}
		opt := format.Options{Columns: []string{"text"}, Indexes: format.NewIndexes()}
		if chunks, err := f.Chunks(t.Context(), metered, obj, opt); err != nil || chunks != n {
			t.Fatalf("%s: %d chunks: %v", name, chunks, err)
		}
		for i := range n {
			chunk := (i * 7) % n // in another order than that of the file
			checkChunk(t, f, metered, obj, chunk, opt)
		}
		m := metered.Meter()
		t.Logf("%s: %d bytes in %d reads of a file of %d", name, m.Bytes, m.Reads, obj.Size)
		if m.Bytes > 4*obj.Size || m.Reads > 12*n {
			t.Errorf("%s: reading the %d chunks of %d bytes took %d bytes in %d reads", name, n, obj.Size, m.Bytes, m.Reads)
		}
	}
}

// checkChunk reads a chunk of manyChunks.
func checkChunk(t *testing.T, f format.Format, st store.Store, obj store.Object, chunk int, opt format.Options) {
	t.Helper()
	row := int64(2 * chunk)
	err := format.Read(t.Context(), f, st, obj, chunk, opt, func(r *format.Record) error {
		if r.Err != nil || r.Row != row || string(r.Values[0].Bytes) != fmt.Sprint(row) {
			t.Errorf("%s: chunk %d has %+v where row %d is", obj.URI, chunk, r, row)
		}
		row++
		return nil
	})
	if err != nil || row != int64(2*chunk+2) {
		t.Fatalf("%s: chunk %d ends before row %d: %v", obj.URI, chunk, row, err)
	}
}
