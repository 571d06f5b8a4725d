package format

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	pqgo "github.com/parquet-go/parquet-go"

	"github.com/millrace-data/millrace/internal/fault"
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
	var parquet bytes.Buffer
	w := pqgo.NewGenericWriter[row](&parquet)
	if _, err := w.Write(rows); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "words", Type: arrow.ListOf(arrow.BinaryTypes.String)}, {Name: "pairs", Type: arrow.ListOf(arrow.ListOf(arrow.BinaryTypes.String))},
	}, nil)
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader("["+strings.ReplaceAll(strings.TrimSpace(lines), "\n", ",")+"]"))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Release()
	for _, file := range []struct {
		name   string
		format Format
		data   []byte
	}{
		{"a.jsonl", JSONL{}, []byte(lines)},
		{"a.parquet", Parquet{}, parquet.Bytes()},
		{"a.arrow", Arrow{}, writeArrow(t, rec, 1, true)},
	} {
		var files store.Memory
		files.Put("/"+file.name, file.data)
		objects, err := files.List(t.Context(), "/"+file.name)
		if err != nil {
			t.Fatal(err)
		}
		for limit, want := range map[int][]bool{3: {true, false, false, true}, 4: {true, true, false, true}, 5: {true, true, true, true}, 2: {false, false, false, false}} {
			var got []bool
			err := file.format.Read(t.Context(), &files, objects[0], 0, Options{Columns: []string{"words[]", "pairs[]"}, MaxElements: limit}, func(r *Record) error {
				if got = append(got, r.Err == nil); r.Err != nil && (!errors.Is(r.Err, ErrTooMany) || fault.ClassOf(r.Err) != fault.User || !strings.Contains(r.Err.Error(), "larger max_elements")) {
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
