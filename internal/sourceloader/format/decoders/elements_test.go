package decoders_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	arrowlib "github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	pqgo "github.com/parquet-go/parquet-go"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/arrow"
	"github.com/millrace-data/millrace/internal/sourceloader/format/json"
	"github.com/millrace-data/millrace/internal/sourceloader/format/parquet"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// TestMaxElements: every format with lists counts their elements alike, those of lists in
// lists too, refuses the records that have more than the limit, and reads all others.
func TestMaxElements(t *testing.T) {
	type row struct {
		Words []string   `parquet:"words,list" json:"words"`
		Pairs [][]string `parquet:"pairs,list" json:"pairs"`
	}
	rows := []row{
		{[]string{"a", "b", "c"}, [][]string{{"a"}, {}}}, // 3 and 3 elements
		{[]string{"a", "b", "c", "d"}, nil},
		{nil, [][]string{{"a", "b"}, {}, {}}}, // 5
		{nil, [][]string{{}, {}, {}}},         // 3
	}
	const lines = `{"words": ["a", "b", "c"], "pairs": [["a"], []]}
{"words": ["a", "b", "c", "d"], "pairs": []}
{"words": [], "pairs": [["a", "b"], [], []]}
{"words": [], "pairs": [[], [], []]}
`
	var written bytes.Buffer
	w := pqgo.NewGenericWriter[row](&written)
	if _, err := w.Write(rows); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	schema := arrowlib.NewSchema([]arrowlib.Field{
		{Name: "words", Type: arrowlib.ListOf(arrowlib.BinaryTypes.String)}, {Name: "pairs", Type: arrowlib.ListOf(arrowlib.ListOf(arrowlib.BinaryTypes.String))},
	}, nil)
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader("["+strings.ReplaceAll(strings.TrimSpace(lines), "\n", ",")+"]"))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Release()
	for _, file := range []struct {
		name   string
		format format.Format
		data   []byte
	}{
		{"a.jsonl", json.Lines{}, []byte(lines)},
		{"a.parquet", parquet.Format{}, written.Bytes()},
		{"a.arrow", arrow.Format{}, writeArrow(t, rec)},
	} {
		var files store.Memory
		files.Put("/"+file.name, file.data)
		objects, err := files.List(t.Context(), "/"+file.name)
		if err != nil {
			t.Fatal(err)
		}
		for limit, want := range map[int][]bool{3: {true, false, false, true}, 4: {true, true, false, true}, 5: {true, true, true, true}, 2: {false, false, false, false}} {
			var got []bool
			err := format.Read(t.Context(), file.format, &files, objects[0], 0, format.Options{Columns: []string{"words[]", "pairs[]"}, MaxElements: limit}, func(r *format.Record) error {
				if got = append(got, r.Err == nil); r.Err != nil && (!errors.Is(r.Err, format.ErrTooMany) || fault.ClassOf(r.Err) != fault.User || !strings.Contains(r.Err.Error(), "larger max_elements")) {
					t.Errorf("%s: %v", file.name, r.Err)
				}
				return nil
			})
			if err != nil || len(got) != len(want) {
				t.Fatalf("%s: %d records: %v", file.name, len(got), err)
			}
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("%s: with %d elements allowed record %d is read: %v, want %v", file.name, limit, i, got[i], want[i])
				}
			}
		}
	}
}

// writeArrow returns an IPC file of one batch.
func writeArrow(t testing.TB, rec arrowlib.RecordBatch) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := ipc.NewFileWriter(&b, ipc.WithSchema(rec.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(rec), w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
