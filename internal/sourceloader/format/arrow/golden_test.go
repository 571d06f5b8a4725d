package arrow

import (
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fieldpath"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/columnar"
	"github.com/millrace-data/millrace/internal/sourceloader/format/formattest"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/testdata"
)

// schemaOf reads the schema of a local file.
func schemaOf(obj store.Object) (*field, error) {
	h, err := os.Open(obj.URI)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	index, err := readIndex(h, obj)
	if err != nil {
		return nil, err
	}
	return index.root, nil
}

// pathsOf lists the columns of a local file that can be read.
func pathsOf(obj store.Object) ([]string, error) {
	root, err := schemaOf(obj)
	if err != nil {
		return nil, err
	}
	readable, _ := root.split()
	return readable, nil
}

// split sorts the columns into those that can be read and those that cannot,
// with the reason.
func (f *field) split() (readable []string, refused map[string]string) {
	refused = map[string]string{}
	for _, name := range f.paths() {
		path, err := fieldpath.Parse(name)
		if err == nil {
			_, err = f.resolve(name, path)
		}
		if err != nil {
			refused[name] = err.Error()
			continue
		}
		readable = append(readable, name)
	}
	return readable, refused
}

// TestFiles reads every column of every good file and compares the numbers
// of rows and batches with the index.
func TestFiles(t *testing.T) {
	dir, files := formattest.ReadIndex(t, "arrow-ipc/INDEX.tsv")
	columns, refused := 0, map[string]int{}
	for _, f := range files {
		obj := formattest.Stat(t, filepath.Join(dir, f.Path))
		chunks, err := Format{}.Chunks(t.Context(), store.Local{}, obj, format.Options{})
		if err != nil || chunks != f.Int(t, "batches") {
			t.Errorf("%s: %d chunks, want %s: %v", f.Path, chunks, f.Fields["batches"], err)
			continue
		}
		root, err := schemaOf(obj)
		if err != nil || len(root.children) != f.Int(t, "columns") {
			t.Errorf("%s: %d columns, want %s: %v", f.Path, len(root.children), f.Fields["columns"], err)
			continue
		}
		readable, reasons := root.split()
		for name, reason := range reasons {
			if !slices.ContainsFunc([]string{"type union", "type run_end", "type interval", "two fields named", "a field name belongs"}, func(s string) bool { return strings.Contains(reason, s) }) {
				t.Errorf("%s: %s: %s", f.Path, name, reason)
			}
			refused[reason[strings.LastIndex(reason, ": ")+2:]]++
		}
		for _, names := range append(formattest.Each(readable), readable) {
			c, err := formattest.ReadColumns(Format{}, store.Local{}, obj, names)
			if err != nil || c.Rows != f.Int(t, "rows") {
				t.Errorf("%s: %s: %d rows, want %s: %v", f.Path, names, c.Rows, f.Fields["rows"], err)
			}
			for _, bad := range c.Bad {
				if fault.ClassOf(bad) != fault.User {
					t.Errorf("%s: %v is of class %s", f.Path, bad, fault.ClassOf(bad))
				}
			}
		}
		columns += len(readable)
	}
	t.Logf("read %d files, %d columns; refused %d columns: %q", len(files), columns, len(refused), slices.Sorted(maps.Keys(refused)))
}

// goldField and goldColumn are Arrow's JSON form of a schema and of a batch.
type goldField struct {
	Name string
	Type struct {
		Name  string
		Scale int
	}
	Children   []goldField
	Dictionary *struct{ ID int }
	inMap      bool
}

type goldColumn struct {
	Name     string
	Count    int
	Validity []int `json:"VALIDITY"`
	Offset   []any `json:"OFFSET"`
	Size     []any `json:"SIZE"`
	Data     []any `json:"DATA"`
	Views    []struct {
		Size    int    `json:"SIZE"`
		Inlined any    `json:"INLINED"`
		Buffer  int    `json:"BUFFER_INDEX"`
		Offset  int    `json:"OFFSET"`
		Prefix  string `json:"PREFIX_HEX"`
	} `json:"VIEWS"`
	Buffers  []string `json:"VARIADIC_DATA_BUFFERS"`
	Children []goldColumn
}

type goldFile struct {
	Schema       struct{ Fields []goldField }
	Batches      []goldBatch
	Dictionaries []struct {
		ID   int
		Data goldBatch
	}
}

type goldBatch struct {
	Count   int
	Columns []goldColumn
}

func readGold(t *testing.T, path string) (g goldFile) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(z)
	d.UseNumber()
	if err := d.Decode(&g); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return g
}

func goldInt(v any) int {
	var n int
	fmt.Sscan(fmt.Sprint(v), &n)
	return n
}

// value returns value i of a column as nested plain JSON.
func (g *goldFile) value(f goldField, c goldColumn, i int) any {
	if len(c.Validity) > i && c.Validity[i] == 0 || f.Type.Name == "null" && f.Dictionary == nil {
		return nil
	}
	if f.Dictionary != nil {
		for _, d := range g.Dictionaries {
			if d.ID == f.Dictionary.ID {
				f.Dictionary = nil
				return g.value(f, d.Data.Columns[0], goldInt(c.Data[i]))
			}
		}
	}
	list := func(from, to int) any {
		values := []any{}
		for ; from < to; from++ {
			child := f.Children[0]
			child.inMap = f.Type.Name == "map"
			values = append(values, g.value(child, c.Children[0], from))
		}
		return values
	}
	switch f.Type.Name {
	case "list", "largelist", "map":
		return list(goldInt(c.Offset[i]), goldInt(c.Offset[i+1]))
	case "listview", "largelistview":
		return list(goldInt(c.Offset[i]), goldInt(c.Offset[i])+goldInt(c.Size[i]))
	case "fixedsizelist":
		n := c.Children[0].Count / max(c.Count, 1)
		return list(i*n, (i+1)*n)
	case "struct":
		if f.inMap {
			f.Children = slices.Clone(f.Children)
			f.Children[0].Name, f.Children[1].Name = "key", "value"
		}
		fields := map[string]any{}
		for k, child := range f.Children {
			fields[child.Name] = g.value(child, c.Children[k], i)
		}
		return fields
	}
	return goldLeaf(f, c, i)
}

func goldLeaf(f goldField, c goldColumn, i int) any {
	unhex := func(s string) string {
		b, _ := hex.DecodeString(s)
		return string(b)
	}
	switch f.Type.Name {
	case "binaryview", "utf8view":
		v := c.Views[i]
		if inlined, ok := v.Inlined.(string); ok {
			if f.Type.Name == "binaryview" {
				return unhex(inlined)
			}
			return inlined
		}
		return unhex(c.Buffers[v.Buffer])[v.Offset : v.Offset+v.Size]
	case "binary", "largebinary", "fixedsizebinary":
		return unhex(c.Data[i].(string))
	case "decimal", "decimal32", "decimal64", "decimal256":
		x, _ := new(big.Int).SetString(c.Data[i].(string), 10)
		return columnar.DecimalText(x, f.Type.Scale)
	case "utf8", "largeutf8":
		return c.Data[i]
	case "bool":
		return c.Data[i] == true || fmt.Sprint(c.Data[i]) == "1"
	}
	return json.Number(fmt.Sprint(c.Data[i]))
}

// TestGolden compares the files of the Arrow project with their JSON.
func TestGolden(t *testing.T) {
	dir := filepath.Join(testdata.Dir(t), "arrow-ipc", "arrow-testing-integration")
	golds, err := filepath.Glob(filepath.Join(dir, "*", "*.json.gz"))
	if err != nil || len(golds) == 0 {
		t.Fatal(err, len(golds))
	}
	files, compared := 0, 0
	for _, gold := range golds {
		g := readGold(t, gold)
		for _, ext := range []string{".arrow_file", ".stream"} {
			path := strings.TrimSuffix(gold, ".json.gz") + ext
			if _, err := os.Stat(path); err != nil {
				continue
			}
			files++
			compared += compareGold(t, path, g)
		}
	}
	t.Logf("compared %d values of %d files with %d JSON files", compared, files, len(golds))
	if files < 100 || compared < 20000 {
		t.Errorf("compared too little")
	}
}

func compareGold(t *testing.T, path string, g goldFile) (compared int) {
	t.Helper()
	obj := formattest.Stat(t, path)
	root, err := schemaOf(obj)
	if err != nil {
		t.Error(err)
		return 0
	}
	readable, _ := root.split()
	for _, name := range readable {
		steps, _ := fieldpath.Parse(name)
		resolved, _ := root.resolve(name, steps)
		if resolved.tokens { // read as a list, where nulls and 64 bits are allowed
			for range len(resolved.steps) - len(steps) {
				name, steps = name+"[]", append(steps, fieldpath.Step{Each: true})
			}
		}
		c, err := formattest.ReadColumns(Format{}, store.Local{}, obj, []string{name})
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		row, top := 0, resolved.steps[0]
		for _, batch := range g.Batches {
			for i := range batch.Count {
				want := formattest.PickJSON(g.value(g.Schema.Fields[top], batch.Columns[top], i), steps[1:])
				got := c.Values[0][row]
				row++
				if n, ok := want.(json.Number); ok && got.Kind == format.Null && len(c.Bad) > 0 && len(n) >= 19 {
					continue // an unsigned value above 2^63-1
				}
				if diff := formattest.Differs(got, want); diff != "" {
					t.Errorf("%s: row %d, column %s: %s", path, row-1, name, diff)
					break
				}
				compared++
			}
		}
	}
	return compared
}

// TestAgainstLibrary compares files of other writers with what arrow-go
// reads.
func TestAgainstLibrary(t *testing.T) {
	dir, files := formattest.ReadIndex(t, "arrow-ipc/INDEX.tsv")
	read, compared := 0, 0
	for _, f := range files {
		if strings.Contains(f.Path, "arrow-testing-integration") {
			continue
		}
		rows, err := libraryJSON(filepath.Join(dir, f.Path))
		if err != nil {
			t.Errorf("%s: the library: %v", f.Path, err)
			continue
		}
		obj := formattest.Stat(t, filepath.Join(dir, f.Path))
		columns, err := pathsOf(obj)
		if err != nil {
			t.Fatal(err)
		}
		c, err := formattest.ReadColumns(Format{}, store.Local{}, obj, columns)
		if err != nil || c.Rows != len(rows) {
			t.Errorf("%s: %d rows, the library reads %d: %v", f.Path, c.Rows, len(rows), err)
			continue
		}
		read++
		for i, name := range columns {
			path, _ := fieldpath.Parse(name)
			for row := range rows {
				got := c.Values[i][row]
				if got.Kind == format.Int && strings.HasPrefix(f.Path, "arrow-ipc/polars/lineitem") {
					continue // dates, which the library prints as text
				}
				if diff := formattest.Differs(got, formattest.PickJSON(rows[row][path[0].Key], path[1:])); diff != "" {
					t.Errorf("%s: row %d, column %s: %s", f.Path, row, name, diff)
					break
				}
				compared++
			}
		}
	}
	t.Logf("compared %d values of %d files", compared, read)
}

func libraryJSON(path string) (rows []map[string]any, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	type marshaller interface{ MarshalJSON() ([]byte, error) }
	add := func(rec marshaller) error {
		data, err := rec.MarshalJSON()
		if err != nil {
			return err
		}
		var batch []map[string]any
		d := json.NewDecoder(strings.NewReader(string(data)))
		d.UseNumber()
		err = d.Decode(&batch)
		rows = append(rows, batch...)
		return err
	}
	if r, err := ipc.NewFileReader(file); err == nil {
		defer r.Close()
		for i := range r.NumRecords() {
			rec, err := r.RecordBatchAt(i)
			if err != nil {
				return nil, err
			}
			if err := add(rec); err != nil {
				return nil, err
			}
		}
		return rows, nil
	}
	if _, err := file.Seek(0, 0); err != nil {
		return nil, err
	}
	r, err := ipc.NewReader(file)
	if err != nil {
		return nil, err
	}
	defer r.Release()
	for r.Next() {
		if err := add(r.RecordBatch()); err != nil {
			return nil, err
		}
	}
	return rows, r.Err()
}

// TestResume stops the row groups or batches of the smaller files at a few rows and
// goes on.
func TestResume(t *testing.T) {
	dir, files := formattest.ReadIndex(t, "arrow-ipc/INDEX.tsv")
	resumed := 0
	for _, f := range files {
		obj := formattest.Stat(t, filepath.Join(dir, f.Path))
		columns, err := pathsOf(obj)
		if err != nil || obj.Size > 200<<10 || f.Fields["rows"] == "" {
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
