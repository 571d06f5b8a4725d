package arrow

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/formattest"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/testdata"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

var sampleArrowSchema = arrow.NewSchema([]arrow.Field{
	{Name: "text", Type: arrow.BinaryTypes.String},
	{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "view", Type: arrow.BinaryTypes.StringView},
	{Name: "lang", Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, Nullable: true},
	{Name: "tokens", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32), Nullable: true},
	{Name: "wide", Type: arrow.LargeListOf(arrow.PrimitiveTypes.Int64)},
	{Name: "fixed", Type: arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Uint16)},
	{Name: "prompt", Type: arrow.ListOf(arrow.BinaryTypes.LargeString)},
	{Name: "messages", Type: arrow.ListOf(arrow.StructOf(
		arrow.Field{Name: "role", Type: arrow.BinaryTypes.String},
		arrow.Field{Name: "content", Type: arrow.BinaryTypes.String, Nullable: true},
	))},
	{Name: "meta", Type: arrow.StructOf(arrow.Field{Name: "title", Type: arrow.BinaryTypes.String}), Nullable: true},
}, nil)

const sampleBatch = `[
 {"text":"first ü","n":1,"view":"a view of more than twelve bytes","lang":"de","tokens":[1,2,-3],"wide":[5],"fixed":[1,2],"prompt":["a","b"],"messages":[{"role":"user","content":"hi"},{"role":"tool","content":null}],"meta":{"title":"t"}},
 {"text":"","n":null,"view":"short","lang":null,"tokens":[],"wide":[2147483648],"fixed":[3,65535],"prompt":[],"messages":[],"meta":null},
 {"text":"last","n":-9,"view":"","lang":"en","tokens":null,"wide":[],"fixed":[0,0],"prompt":["c"],"messages":[{"role":"user","content":"x"}],"meta":{"title":""}}
]`

// sampleArrow writes batches copies of the sample batch, as a file or stream.
func sampleArrow(t testing.TB, batches int, file bool, options ...ipc.Option) []byte {
	t.Helper()
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, sampleArrowSchema, strings.NewReader(sampleBatch))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Release()
	return writeArrow(t, rec, batches, file, options...)
}

func writeArrow(t testing.TB, rec arrow.RecordBatch, batches int, file bool, options ...ipc.Option) []byte {
	t.Helper()
	var b bytes.Buffer
	options = append([]ipc.Option{ipc.WithSchema(rec.Schema())}, options...)
	var w interface {
		Write(arrow.RecordBatch) error
		Close() error
	} = ipc.NewWriter(&b, options...)
	if file {
		var err error
		if w, err = ipc.NewFileWriter(&b, options...); err != nil {
			t.Fatal(err)
		}
	}
	for range batches {
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func pathsIn(data []byte) ([]string, error) {
	index, err := readIndex(bytes.NewReader(data), store.Object{Size: int64(len(data))})
	if err != nil {
		return nil, err
	}
	names, _ := index.root.split()
	return names, nil
}

// TestSparseMarks: a batch between two marks is found from the one before, in whatever order batches are asked for.
func TestSparseMarks(t *testing.T) {
	const n = 9
	for _, file := range []bool{true, false} {
		st, obj := formattest.InMemory(sampleArrow(t, n, file))
		for most := 2; most < 2*n; most += 2 {
			h, err := st.Open(t.Context(), obj)
			if err != nil {
				t.Fatal(err)
			}
			x, err := readIndex(h, obj)
			if err != nil {
				t.Fatal(err)
			}
			x.marks.Most = most
			opt := format.Options{Columns: []string{"text", "lang"}, Indexes: format.NewIndexes()}
			opt.Indexes.Put(obj, x, 1)
			for k := range 3 * n {
				batch := (5 + 4*k) % n
				row := int64(3 * batch)
				err := format.Read(t.Context(), Format{}, st, obj, batch, opt, func(r *format.Record) error {
					got, want := formattest.Print(*r), []string{`"first ü" "de"`, `"" null`, `"last" "en"`}[row%3]
					if got != fmt.Sprintf("%d: %s", row, want) {
						t.Errorf("row %d of batch %d: %s", row, batch, got)
					}
					row++
					return nil
				})
				if err != nil || row != int64(3*batch+3) {
					t.Fatalf("%d marks: batch %d ends at row %d: %v", most, batch, row, err)
				}
			}
			if opt.Indexes.Get(obj) != any(x) || x.marks.Len() != n {
				t.Errorf("%d batches are known of %d", x.marks.Len(), n)
			}
			h.Close()
		}
	}
}

func TestValues(t *testing.T) {
	for name, data := range map[string][]byte{
		"file":   sampleArrow(t, 2, true),
		"stream": sampleArrow(t, 2, false),
		"lz4":    sampleArrow(t, 2, true, ipc.WithLZ4()),
		"zstd":   sampleArrow(t, 2, false, ipc.WithZstd()),
	} {
		st, obj := formattest.InMemory(data)
		for column, want := range map[string]string{
			"text":               "first ü||last",
			"n":                  "1|null|-9",
			"view":               "a view of more than twelve bytes|short|",
			"lang":               "de|null|en",
			"tokens":             "T[1 2 -3]|T[]|null",
			"tokens[]":           "[1 2 -3]|[]|null",
			"wide[]":             "[5]|[2147483648]|[]",
			"fixed":              "T[1 2]|T[3 65535]|T[0 0]",
			"prompt":             "[a b]|[]|[c]",
			"prompt[]":           "[a b]|[]|[c]",
			"messages[].role":    "[user tool]|[]|[user]",
			"messages[].content": "[hi null]|[]|[x]",
			"meta.title":         "t|null|",
		} {
			c, err := formattest.ReadColumns(Format{}, st, obj, []string{column})
			if err != nil || len(c.Bad) > 0 {
				t.Errorf("%s: %s: %v %v", name, column, err, c.Bad)
				continue
			}
			var got []string
			for _, v := range c.Values[0] {
				got = append(got, formattest.Show(v))
			}
			if g := strings.Join(got, "|"); g != want+"|"+want {
				t.Errorf("%s: %s: %s, want %s twice", name, column, g, want)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	st, obj := formattest.InMemory(sampleArrow(t, 2, false))
	for column, want := range map[string]string{
		"txt":              `there is no column "txt"; did you mean "text"? The file has text, n, view`,
		"messages.content": `write "messages[].content"`,
		"text[]":           `"text" is not a list`,
	} {
		err := format.Read(context.Background(), Format{}, st, obj, 0, format.Options{Columns: []string{column}}, nil)
		if err == nil || !strings.Contains(err.Error(), want) || fault.ClassOf(err) != fault.User {
			t.Errorf("%q: %v, want %q", column, err, want)
		}
	}
	c, err := formattest.ReadColumns(Format{}, st, obj, []string{"wide"})
	if err != nil || len(c.Bad) != 2 || !strings.Contains(c.Bad[1].Error(), `row 4 of /file: column "wide": the token id 2147483648`) {
		t.Errorf("wide: %v %v", err, c.Bad)
	}
	if err := format.Read(context.Background(), Format{}, st, obj, 2, format.Options{}, nil); fault.ClassOf(err) != fault.User {
		t.Errorf("batch 2 of 2: %v", err)
	}
}

// TestBytesRead counts bytes: batches that are not wanted are hopped over,
// and of the wanted one only the column's buffers are read.
func TestBytesRead(t *testing.T) {
	rows := make([]string, 400)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"a":%d,"b":"%s"}`, i, strings.Repeat("x", 1000))
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}, {Name: "b", Type: arrow.BinaryTypes.String}}, nil)
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader("["+strings.Join(rows, ",")+"]"))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Release()
	for _, file := range []bool{true, false} {
		st, obj := formattest.InMemory(writeArrow(t, rec, 5, file))
		for what, limit := range map[string]int64{"chunks": 4 << 10, "a": 8*400 + 5<<10, "b": 1000*400 + 4*401 + 5<<10} {
			metered := store.NewMetered(st)
			var err error
			if what == "chunks" {
				_, err = Format{}.Chunks(context.Background(), metered, obj, format.Options{})
			} else {
				err = format.Read(context.Background(), Format{}, metered, obj, 4, format.Options{Columns: []string{what}}, func(r *format.Record) error {
					if r.Row < 1600 {
						return fmt.Errorf("row %d in the last batch", r.Row)
					}
					return nil
				})
			}
			if m := metered.Meter(); err != nil || m.Bytes > limit {
				t.Errorf("file %v, %s: %d bytes of %d in %d reads, want at most %d: %v", file, what, m.Bytes, obj.Size, m.Reads, limit, err)
			}
		}
	}
}

func TestCorrupt(t *testing.T) {
	verdicts := formattest.DamagedFiles(t, "arrow-ipc", Format{}, pathsOf)
	if verdicts["refused"] < 40 {
		t.Errorf("%v: want most refused", verdicts)
	}
}

// TestDamage flips bits of sound files; see TestDamage.
func TestDamage(t *testing.T) {
	for _, data := range [][]byte{sampleArrow(t, 2, true), sampleArrow(t, 2, false), sampleArrow(t, 2, true, ipc.WithZstd()), sampleArrow(t, 1, false, ipc.WithLZ4())} {
		rng := newRand(1)
		for range 500 {
			damaged := append([]byte(nil), data...)
			for range 1 + rng.IntN(4) {
				damaged[rng.IntN(len(damaged))] ^= byte(1 << rng.IntN(8))
			}
			formattest.ReadFuzzed(t, Format{}, damaged, pathsIn)
		}
	}
}

func FuzzArrow(f *testing.F) {
	f.Add(sampleArrow(f, 1, true))
	f.Add(sampleArrow(f, 2, false, ipc.WithLZ4()))
	if dir, ok := testdata.Find(); ok {
		for _, name := range []string{"generated_nested_dictionary.stream", "generated_list_view.arrow_file"} {
			if data, err := os.ReadFile(filepath.Join(dir, "arrow-ipc/arrow-testing-integration/cpp-21.0.0", name)); err == nil {
				f.Add(data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { formattest.ReadFuzzed(t, Format{}, data, pathsIn) })
}

func BenchmarkArrow(b *testing.B) {
	tokens := array.NewListBuilder(memory.DefaultAllocator, arrow.PrimitiveTypes.Int32)
	for _, r := range formattest.TokenRows(newRand(1)) {
		tokens.Append(true)
		tokens.ValueBuilder().(*array.Int32Builder).AppendValues(r, nil)
	}
	text := array.NewStringBuilder(memory.DefaultAllocator)
	for _, r := range formattest.TextRows(newRand(2)) {
		text.Append(r)
	}
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "tokens", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32), Nullable: true}, {Name: "text", Type: arrow.BinaryTypes.String},
	}, nil)
	rec := array.NewRecordBatch(schema, []arrow.Array{tokens.NewArray(), text.NewArray()}, formattest.BenchRows)
	for name, options := range map[string][]ipc.Option{"plain": nil, "lz4": {ipc.WithLZ4()}, "zstd": {ipc.WithZstd()}} {
		path := filepath.Join(b.TempDir(), "bench.arrow")
		if err := os.WriteFile(path, writeArrow(b, rec, 1, true, options...), 0o644); err != nil {
			b.Fatal(err)
		}
		obj := formattest.Stat(b, path)
		for _, column := range []string{"tokens", "text"} {
			b.Run(column+"-"+name, func(b *testing.B) { formattest.Bench(b, Format{}, obj, column) })
		}
	}
}
