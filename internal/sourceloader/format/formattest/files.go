package formattest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/testdata"
)

// InMemory returns a store of one file.
func InMemory(data []byte) (*store.Memory, store.Object) {
	st := &store.Memory{}
	uri := st.Put("/file", data)
	obj, err := st.Stat(context.Background(), uri)
	if err != nil {
		panic(err) // it was just put there
	}
	return st, obj
}

// Stat finds a local file.
func Stat(t testing.TB, path string) store.Object {
	t.Helper()
	obj, err := store.Local{}.Stat(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// Indexed is a file of the shared data set with what its index says of it.
type Indexed struct {
	Path   string // below the data folder
	Fields map[string]string
}

// ReadIndex reads an index of the data set.
func ReadIndex(t testing.TB, name string) (dir string, files []Indexed) {
	t.Helper()
	dir = testdata.Dir(t)
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	head := strings.Split(lines[0], "\t")
	for _, line := range lines[1:] {
		f := Indexed{Fields: map[string]string{}}
		for i, v := range strings.Split(line, "\t") {
			f.Fields[head[i]] = v
		}
		f.Path = f.Fields["path"]
		files = append(files, f)
	}
	return dir, files
}

// Int is a field as a number.
func (f Indexed) Int(t testing.TB, field string) int {
	t.Helper()
	n, err := strconv.Atoi(f.Fields[field])
	if err != nil {
		t.Fatalf("%s: %s: %v", f.Path, field, err)
	}
	return n
}

// Contents is a file as read: one slice of values per column, and the errors of
// single records.
type Contents struct {
	Rows   int
	Values [][]format.Value
	Bad    []error
}

// ReadColumns reads the columns of a columnar file together, chunk by chunk, and
// checks that the rows are numbered without a gap.
func ReadColumns(f format.Format, st store.Store, obj store.Object, columns []string) (Contents, error) {
	return readColumns(f, st, obj, columns, 0)
}

var errEnough = errors.New("enough rows")

// readColumns stops each chunk after most rows, if that is not 0: a damaged file may
// claim any number of empty ones.
func readColumns(f format.Format, st store.Store, obj store.Object, columns []string, most int) (c Contents, err error) {
	ctx := context.Background()
	n, err := f.Chunks(ctx, st, obj, format.Options{Columns: columns})
	if err != nil {
		return c, err
	}
	c.Values = make([][]format.Value, len(columns))
	for chunk := range n {
		rows := 0
		err := format.Read(ctx, f, st, obj, chunk, format.Options{Columns: columns}, func(r *format.Record) error {
			if rows++; most > 0 && rows > most {
				return errEnough
			}
			if r.Row != int64(c.Rows) {
				return fmt.Errorf("row %d is numbered %d", c.Rows, r.Row)
			}
			c.add(r)
			return nil
		})
		if err == errEnough {
			err = fault.As(fault.User, err)
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *Contents) add(r *format.Record) {
	c.Rows++
	if r.Err != nil {
		c.Bad = append(c.Bad, r.Err)
	}
	values := cloneValues(r.Values)
	for i := range c.Values {
		v := format.Value{}
		if r.Err == nil {
			v = values[i]
		}
		c.Values[i] = append(c.Values[i], v)
	}
}

// ReadMemory reads the columns that a file has, which may be damaged, up to a limit.
func ReadMemory(f format.Format, data []byte, columns func([]byte) ([]string, error)) (Contents, error) {
	names, err := columns(data)
	if err != nil {
		return Contents{}, err
	}
	st, obj := InMemory(data)
	return readColumns(f, st, obj, names, 1000)
}

// ReadFuzzed reads a file that may be damaged: every error must be the user's.
func ReadFuzzed(t *testing.T, f format.Format, data []byte, columns func([]byte) ([]string, error)) {
	t.Helper()
	_, err := ReadMemory(f, data, columns)
	if err != nil && fault.ClassOf(err) != fault.User {
		t.Fatalf("%v is of class %s", err, fault.ClassOf(err))
	}
}

// Bounds for one damaged file: far above what reading it takes, far below what
// its headers can claim.
const (
	corruptTime  = 10 * time.Second
	corruptAlloc = 1 << 30
)

// DamagedFiles reads all columns of the files in a folder of the corrupt part of the
// data set, together and one by one, and counts what came out: "read", or "refused" if
// there is an error, which must be the user's.
func DamagedFiles(t *testing.T, folder string, f format.Format, columns func(store.Object) ([]string, error)) map[string]int {
	verdicts := map[string]int{}
	dir := filepath.Join(testdata.Dir(t), "corrupt", folder)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		obj := Stat(t, path)
		start := time.Now()
		v := readDamaged(t, f, obj, columns)
		if verdicts[v]++; v == "read" {
			t.Logf("read: %s", filepath.Base(obj.URI))
		}
		if took := time.Since(start); took > corruptTime/2 {
			t.Errorf("%s took %s", obj.URI, took)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(verdicts)
	return verdicts
}

func readDamaged(t *testing.T, f format.Format, obj store.Object, columns func(store.Object) ([]string, error)) string {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ctx, cancel := context.WithTimeout(context.Background(), corruptTime)
	defer cancel()
	names, err := columns(obj)
	if err == nil {
		err = readEach(ctx, t, f, obj, names)
	}
	if err != nil && fault.ClassOf(err) != fault.User {
		t.Errorf("%s: %v is of class %s", obj.URI, err, fault.ClassOf(err))
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > corruptAlloc {
		t.Errorf("%s: %d MiB were allocated", obj.URI, n>>20)
	}
	if err != nil {
		return "refused"
	}
	return "read"
}

// readEach reads the columns together and each by itself, and returns the last error.
func readEach(ctx context.Context, t *testing.T, f format.Format, obj store.Object, names []string) error {
	t.Helper()
	chunks, err := f.Chunks(ctx, store.Local{}, obj, format.Options{})
	for _, set := range append([][]string{names}, Each(names)...) {
		for chunk := range chunks {
			bad := format.Read(ctx, f, store.Local{}, obj, chunk, format.Options{Columns: set}, func(r *format.Record) error {
				if r.Err != nil && fault.ClassOf(r.Err) != fault.User {
					t.Errorf("%s: %v is of class %s", obj.URI, r.Err, fault.ClassOf(r.Err))
				}
				return nil
			})
			if bad != nil {
				err = bad
			}
		}
	}
	return err
}

// Each returns the names one by one.
func Each(names []string) (single [][]string) {
	for _, n := range names {
		single = append(single, []string{n})
	}
	return single
}

// Show prints a value so that kinds and nulls can be told apart.
func Show(v format.Value) string {
	switch v.Kind {
	case format.Null:
		return "null"
	case format.String:
		return string(v.Bytes)
	case format.Bytes:
		return fmt.Sprintf("0x%x", v.Bytes)
	case format.Int:
		return fmt.Sprint(v.Int)
	case format.Float:
		return fmt.Sprintf("%gf", v.Float)
	case format.Bool:
		return fmt.Sprint(v.Int == 1)
	case format.Tokens:
		return fmt.Sprintf("T%d", v.Tokens)
	}
	parts := make([]string, len(v.List))
	for i, e := range v.List {
		parts[i] = Show(e)
	}
	return "[" + strings.Join(parts, " ") + "]"
}
