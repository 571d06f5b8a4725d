package format

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/testdata"
)

// indexed is a file of the shared data set with what its index says of it.
type indexed struct {
	path   string // below the data folder
	fields map[string]string
}

func readIndex(t testing.TB, name string) (dir string, files []indexed) {
	t.Helper()
	dir = testdata.Dir(t)
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	head := strings.Split(lines[0], "\t")
	for _, line := range lines[1:] {
		f := indexed{fields: map[string]string{}}
		for i, v := range strings.Split(line, "\t") {
			f.fields[head[i]] = v
		}
		f.path = f.fields["path"]
		files = append(files, f)
	}
	return dir, files
}

func (f indexed) int(t testing.TB, field string) int {
	t.Helper()
	n, err := strconv.Atoi(f.fields[field])
	if err != nil {
		t.Fatalf("%s: %s: %v", f.path, field, err)
	}
	return n
}

// statObject finds a local file.
func statObject(t testing.TB, path string) store.Object {
	t.Helper()
	obj, err := store.Local{}.Stat(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// clone copies a value out of its reader's memory.
func (v Value) clone() Value {
	v.Bytes = bytes.Clone(v.Bytes)
	v.Tokens = append([]int32(nil), v.Tokens...)
	list := make([]Value, len(v.List))
	for i, e := range v.List {
		list[i] = e.clone()
	}
	v.List = list
	return v
}

// contents is a file as read: one slice of values per column, and the errors of
// single records.
type contents struct {
	rows   int
	values [][]Value
	bad    []error
}

// readAllColumns reads the columns of a file together, chunk by chunk, and
// checks that the rows are numbered without a gap.
func readAllColumns(f Format, st store.Store, obj store.Object, columns []string) (c contents, err error) {
	ctx := context.Background()
	n, err := f.Chunks(ctx, st, obj, Options{Columns: columns})
	if err != nil {
		return c, err
	}
	c.values = make([][]Value, len(columns))
	for chunk := range n {
		err := f.Read(ctx, st, obj, chunk, Options{Columns: columns}, func(r *Record) error {
			if r.Row != int64(c.rows) {
				return fmt.Errorf("row %d is numbered %d", c.rows, r.Row)
			}
			c.rows++
			if r.Err != nil {
				c.bad = append(c.bad, r.Err)
			}
			for i := range columns {
				v := Value{}
				if r.Err == nil {
					v = r.Values[i].clone()
				}
				c.values[i] = append(c.values[i], v)
			}
			return nil
		})
		if err != nil {
			return c, err
		}
	}
	return c, nil
}
