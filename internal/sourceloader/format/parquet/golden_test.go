package parquet

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	pq "github.com/parquet-go/parquet-go/format"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fieldpath"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/formattest"
	"github.com/millrace-data/millrace/internal/sourceloader/format/input"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/testdata"
)

// unreadable are the files of the data set that must fail, with a part of the
// error of at least one column.
var unreadable = map[string]string{
	"apache-parquet-testing/datapage_v1-corrupt-checksum.parquet":           "checksum",
	"apache-parquet-testing/rle-dict-uncompressed-corrupt-checksum.parquet": "checksum",
	"apache-parquet-testing/large_string_map.brotli.parquet":                "more than the limit",
	"velox/lzo.parquet": "LZO",
}

// schemaOf reads the schema of a local file.
func schemaOf(obj store.Object) (*node, error) {
	in, err := input.Open(context.Background(), store.Local{}, obj)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	x, _, err := readIndex(in, obj)
	if err != nil {
		return nil, err
	}
	return schemaTree(x.elements)
}

// TestFiles reads every column of every good file and compares the
// numbers of rows and row groups with the index.
func TestFiles(t *testing.T) {
	dir, files := formattest.ReadIndex(t, "parquet/INDEX.tsv")
	read, columns, refused := 0, 0, 0
	for _, f := range files {
		name := strings.TrimPrefix(f.Path, "parquet/")
		want := unreadable[name]
		if strings.HasSuffix(name, ".encrypted") {
			want = "encrypted"
		}
		obj := formattest.Stat(t, filepath.Join(dir, f.Path))
		n, err := readWholeFile(t, f, obj)
		switch {
		case err == nil && want != "":
			t.Errorf("%s: read; want an error with %q", name, want)
		case err == nil:
			read++
			columns += n
		case want == "" || !strings.Contains(err.Error(), want) || fault.ClassOf(err) != fault.User:
			t.Errorf("%s: %v (class %s, want %q)", name, err, fault.ClassOf(err), want)
		default:
			refused++
		}
	}
	t.Logf("read %d files, %d columns; refused %d as they should be", read, columns, refused)
	if read < 180 {
		t.Errorf("read %d files, want at least 180", read)
	}
}

func readWholeFile(t *testing.T, f formattest.Indexed, obj store.Object) (int, error) {
	chunks, err := Format{}.Chunks(context.Background(), store.Local{}, obj, format.Options{})
	if err != nil {
		return 0, err
	}
	if groups := f.Fields["row_groups"]; groups != "" && f.Int(t, "row_groups") != chunks {
		t.Errorf("%s: %d chunks, want %s", f.Path, chunks, groups)
	}
	root, err := schemaOf(obj)
	if err != nil {
		return 0, err
	}
	// silly-names.parquet has a column without a name, which no path can name.
	columns := slices.DeleteFunc(root.paths(), func(p string) bool { return p == "" })
	rows := 0
	for chunk := range chunks {
		err := format.Read(context.Background(), Format{}, store.Local{}, obj, chunk, format.Options{Columns: columns}, func(r *format.Record) error {
			if r.Row != int64(rows) {
				t.Errorf("%s: row %d is numbered %d", f.Path, rows, r.Row)
			}
			if r.Err != nil && fault.ClassOf(r.Err) != fault.User {
				t.Errorf("%s: %v is of class %s", f.Path, r.Err, fault.ClassOf(r.Err))
			}
			rows++
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	// The footer of this file claims no rows, its row group six.
	if want := f.Fields["rows"]; want != "" && f.Int(t, "rows") != rows && !strings.Contains(f.Path, "repeated_no_annotation") {
		t.Errorf("%s: %d rows, want %s", f.Path, rows, want)
	}
	return len(columns), nil
}

// TestTogether reads all columns of wide files at once, which must give
// what reading them one by one gives.
func TestTogether(t *testing.T) {
	dir := filepath.Join(testdata.Dir(t), "parquet")
	for _, name := range []string{"impala/customer_nested_multiblock_multipage.parquet", "duckdb/userdata1.parquet", "verl-prompts/math500.parquet"} {
		obj := formattest.Stat(t, filepath.Join(dir, name))
		root, err := schemaOf(obj)
		if err != nil {
			t.Fatal(err)
		}
		columns := root.paths()
		all, err := formattest.ReadColumns(Format{}, store.Local{}, obj, columns)
		if err != nil || len(all.Bad) > 0 {
			t.Fatalf("%s: %v %v", name, err, all.Bad)
		}
		for i, column := range columns {
			one, err := formattest.ReadColumns(Format{}, store.Local{}, obj, []string{column})
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(all.Values[i], one.Values[0]) {
				t.Errorf("%s: column %s differs when read with the others", name, column)
			}
		}
	}
}

// TestGolden compares with the rows that the authors of hyparquet
// expect, as JSON.
func TestGolden(t *testing.T) {
	dir := filepath.Join(testdata.Dir(t), "parquet", "hyparquet-golden")
	paths, err := filepath.Glob(filepath.Join(dir, "*.parquet"))
	if err != nil || len(paths) == 0 {
		t.Fatal(err, len(paths))
	}
	files, compared, left := 0, 0, map[string]int{}
	for _, path := range paths {
		data, err := os.ReadFile(strings.TrimSuffix(path, ".parquet") + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var golden [][]any
		d := json.NewDecoder(strings.NewReader(string(data)))
		d.UseNumber()
		if err := d.Decode(&golden); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		n := compareGolden(t, formattest.Stat(t, path), golden, left)
		compared += n
		if n > 0 {
			files++
		}
	}
	t.Logf("compared %d values of %d of %d files; left out, by reason: %v", compared, files, len(paths), left)
	if files < 46 || compared < 49000 {
		t.Errorf("compared too little")
	}
}

func compareGolden(t *testing.T, obj store.Object, golden [][]any, left map[string]int) (compared int) {
	t.Helper()
	root, err := schemaOf(obj)
	if err != nil {
		t.Fatal(err)
	}
	for _, column := range root.paths() {
		path, err := fieldpath.Parse(column)
		if err != nil {
			t.Fatal(err)
		}
		f, err := root.resolve(column, path)
		if err != nil {
			t.Fatal(err)
		}
		if why := incomparable(root, f, path); why != "" {
			left[why] += len(golden)
			continue
		}
		if f.tokens { // read as a list, where nulls and 64 bits are allowed
			for range f.lists {
				column += "[]"
				path = append(path, fieldpath.Step{Each: true})
			}
		}
		c, err := formattest.ReadColumns(Format{}, store.Local{}, obj, []string{column})
		if err != nil {
			t.Errorf("%s: %v", obj.URI, err)
			continue
		}
		if c.Rows != len(golden) {
			t.Errorf("%s: %d rows, want %d", obj.URI, c.Rows, len(golden))
			continue
		}
		first, _ := root.child(column, path[0].Key) // it was resolved above
		top := slices.Index(root.children, first)
		for row := range golden {
			if len(c.Bad) > 0 { // an unsigned value above 2^63-1
				left["record error"]++
				continue
			}
			want := formattest.PickJSON(golden[row][top], path[1:])
			if strings.HasSuffix(obj.URI, "adam_genotypes.parquet") { // its lists are required: they can be empty, never null
				if want == nil && c.Values[0][row].Kind == format.List {
					want = []any{}
				}
				if group, is := want.(map[string]any); is && group["filtersFailed"] == nil {
					group["filtersFailed"] = []any{}
				}
			}
			if diff := formattest.Differs(c.Values[0][row], want); diff != "" {
				t.Errorf("%s: row %d, column %s: %s", filepath.Base(obj.URI), row, column, diff)
				break
			}
			compared++
		}
	}
	return compared
}

// incomparable says why the golden form of a column differs from ours.
func incomparable(root *node, f field, path fieldpath.Path) string {
	at := place{root, true}
	for _, step := range path {
		if at.node.isMap() {
			return "map (golden has an object)"
		}
		if at.node.logical == 16 {
			return "variant (golden has it decoded)"
		}
		if step.Each {
			at, _, _ = at.element()
		} else {
			child, _ := at.node.child("", step.Key)
			at = place{child, false}
		}
	}
	if f.leaf != nil {
		return incomparableLeaf(f.leaf)
	}
	return incomparableGroup(f.object.node)
}

func incomparableGroup(n *node) string {
	if n.leaf {
		return incomparableLeaf(n)
	}
	if n.logical == 16 {
		return "variant (golden has it decoded)"
	}
	for _, c := range n.children {
		if why := incomparableGroup(c); why != "" {
			return why
		}
	}
	return ""
}

func incomparableLeaf(n *node) string {
	switch {
	case n.logical == 17 || n.logical == 18 || n.name == "geometry" || n.name == "geography":
		return "geometry (golden has it decoded)"
	case n.physical == pq.Int96:
		return "INT96 (golden has a date)"
	case n.physical == pq.FixedLenByteArray && !n.isDecimal() && n.logical != logicalFloat16:
		return "bytes"
	case n.physical == pq.ByteArray && n.converted == 20:
		return "BSON (golden has it decoded)"
	case n.logical == 12 || n.converted == convertedJSON:
		return "JSON (golden has it decoded)"
	case (n.physical == pq.Int32 || n.physical == pq.Int64) && !n.isInteger() && !n.isDecimal():
		return "date or time (golden has text)"
	}
	return ""
}

// TestExpectedCSV compares with the CSV files that Apache and the authors
// of fastparquet keep beside theirs.
func TestExpectedCSV(t *testing.T) {
	dir := filepath.Join(testdata.Dir(t), "parquet")
	apache, nation := "apache-parquet-testing/", "fastparquet/nation.csv"
	for name, expected := range map[string]string{
		apache + "delta_binary_packed.parquet":            apache + "delta_binary_packed_expect.csv",
		apache + "delta_byte_array.parquet":               apache + "delta_byte_array_expect.csv",
		apache + "delta_encoding_optional_column.parquet": apache + "delta_encoding_optional_column_expect.csv",
		apache + "delta_encoding_required_column.parquet": apache + "delta_encoding_required_column_expect.csv",
		"fastparquet/nation.plain.parquet":                nation,
		"fastparquet/nation.dict.parquet":                 nation,
		"fastparquet/nation.impala.parquet":               nation,
		"fastparquet/gzip-nation.impala.parquet":          nation,
		"fastparquet/snappy-nation.impala.parquet":        nation,
	} {
		obj := formattest.Stat(t, filepath.Join(dir, name))
		root, err := schemaOf(obj)
		if err != nil {
			t.Fatal(err)
		}
		c, err := formattest.ReadColumns(Format{}, store.Local{}, obj, root.paths())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		rows := readCSV(t, filepath.Join(dir, expected), expected == nation)
		if len(rows) != c.Rows {
			t.Errorf("%s: %d rows, want %d", name, c.Rows, len(rows))
			continue
		}
		for row := range rows {
			for i, want := range rows[row] {
				if got := text(c.Values[i][row]); got != want && got+"cent" != want {
					t.Fatalf("%s: row %d, column %d: %q, want %q", name, row, i, got, want)
				}
			}
		}
	}
}

func readCSV(t *testing.T, path string, bars bool) [][]string {
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r := csv.NewReader(file)
	if bars {
		r.Comma, r.LazyQuotes = '|', true
	}
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if !bars {
		rows = rows[1:]
	}
	return rows
}

func text(v format.Value) string {
	switch v.Kind {
	case format.String, format.Bytes:
		return string(v.Bytes)
	case format.Int, format.Bool:
		return strconv.FormatInt(v.Int, 10)
	case format.Float:
		return strconv.FormatFloat(v.Float, 'g', -1, 64)
	case format.Tokens:
		return fmt.Sprint(v.Tokens)
	case format.List:
		var b strings.Builder
		for _, e := range v.List {
			b.WriteString(text(e) + ";")
		}
		return b.String()
	}
	return ""
}

// TestResume stops the row groups or batches of the smaller files at a few rows and
// goes on.
func TestResume(t *testing.T) {
	dir, files := formattest.ReadIndex(t, "parquet/INDEX.tsv")
	resumed := 0
	for _, f := range files {
		obj := formattest.Stat(t, filepath.Join(dir, f.Path))
		columns, err := pathsOf(obj)
		if err != nil || obj.Size > 40<<10 || f.Fields["rows"] == "" {
			continue
		}
		err = formattest.Resume(t.Context(), Format{}, store.Local{}, obj, format.Options{Columns: columns[:min(len(columns), 20)]}, 1+f.Int(t, "rows")/3)
		switch {
		case err == nil:
			resumed++
		case fault.ClassOf(err) != fault.User: // a file with a column that is refused
			t.Errorf("%s: %v", f.Path, err)
		}
	}
	if resumed < 60 {
		t.Errorf("%d files of %d were read in parts", resumed, len(files))
	}
}
