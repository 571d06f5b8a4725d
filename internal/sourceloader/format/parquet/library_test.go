package parquet

import (
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pqgo "github.com/parquet-go/parquet-go"
	pq "github.com/parquet-go/parquet-go/format"

	"github.com/millrace-data/millrace/internal/fieldpath"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/formattest"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// large adds the files that the library takes seconds to read row by row.
var large = flag.Bool("large", false, "compare large Parquet files too")

const maxLibraryBytes = 256 << 10

// TestAgainstLibrary compares the values that are not null, row by row,
// with those of parquet-go's row reader, an independent decoder.
func TestAgainstLibrary(t *testing.T) {
	dir, files := formattest.ReadIndex(t, "parquet/INDEX.tsv")
	read, compared, notByLibrary := 0, 0, []string{}
	for _, f := range files {
		name := strings.TrimPrefix(f.Path, "parquet/")
		// parquet-go 0.32.0 reads the last of these as empty, with a warning.
		if strings.HasSuffix(name, ".encrypted") || unreadable[name] != "" || strings.HasSuffix(name, "lz4_raw_compressed_larger.parquet") {
			continue
		}
		if f.Int(t, "bytes") > maxLibraryBytes && !*large {
			continue
		}
		path := filepath.Join(dir, f.Path)
		want, err := libraryRows(path)
		if err != nil {
			notByLibrary = append(notByLibrary, name)
			continue
		}
		n := compareRows(t, formattest.Stat(t, path), want)
		compared += n
		if n > 0 {
			read++
		}
	}
	t.Logf("compared %d values of %d files; the library cannot read %q", compared, read, notByLibrary)
	if read < 135 {
		t.Errorf("compared %d files, want at least 135", read)
	}
}

// libraryRows returns the values that are not null of each leaf and row.
func libraryRows(path string) (rows [][][]pqgo.Value, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	f, err := pqgo.OpenFile(file, info.Size(), pqgo.SkipPageIndex(true), pqgo.SkipBloomFilters(true))
	if err != nil {
		return nil, err
	}
	leaves := len(f.Schema().Columns())
	for _, g := range f.RowGroups() {
		r := g.Rows()
		defer r.Close()
		for buf := make([]pqgo.Row, 64); ; {
			n, err := r.ReadRows(buf)
			for _, row := range buf[:n] {
				values := make([][]pqgo.Value, leaves)
				for _, v := range row {
					if !v.IsNull() {
						values[v.Column()] = append(values[v.Column()], v.Clone())
					}
				}
				rows = append(rows, values)
			}
			switch {
			case err == io.EOF:
			case err == nil && n == 0:
				return nil, fmt.Errorf("the library reads nothing, without end")
			case err == nil:
				continue
			default:
				return nil, err
			}
			break
		}
	}
	return rows, nil
}

func compareRows(t *testing.T, obj store.Object, want [][][]pqgo.Value) (compared int) {
	t.Helper()
	root, err := schemaOf(obj)
	if err != nil {
		t.Fatal(err)
	}
	for _, column := range root.paths() {
		path, err := fieldpath.Parse(column)
		if err != nil {
			continue // the column without a name
		}
		f, err := root.resolve(column, path)
		if err != nil {
			t.Fatal(err)
		}
		if f.leaf == nil { // the library has no groups
			continue
		}
		if f.leaf.isDecimal() || f.leaf.logical == logicalFloat16 || f.leaf.physical == pq.Int96 {
			continue
		}
		// parquet-go 0.32.0 takes the value of a run of booleans, 0 or 1, for
		// eight booleans.
		if f.leaf.physical == pq.Boolean && strings.HasSuffix(obj.URI, "duckdb/complex.parquet") {
			continue
		}
		if f.tokens {
			column += strings.Repeat("[]", len(f.lists))
		}
		c, err := formattest.ReadColumns(Format{}, store.Local{}, obj, []string{column})
		if err != nil {
			t.Errorf("%s: %v", obj.URI, err)
			continue
		}
		if c.Rows != len(want) {
			t.Errorf("%s: %d rows, the library reads %d", obj.URI, c.Rows, len(want))
			return compared
		}
		for row := range want {
			if len(c.Bad) > 0 {
				break
			}
			got, expected := flatten(nil, c.Values[0][row]), want[row][f.leaf.column]
			if !sameValues(got, expected, f.leaf) {
				t.Errorf("%s: row %d, column %s: %v, the library reads %v", obj.URI, row, column, got, expected)
				break
			}
			compared += len(got)
		}
	}
	return compared
}

// flatten lists the values in v that are not null and not lists.
func flatten(dst []format.Value, v format.Value) []format.Value {
	switch v.Kind {
	case format.Null:
		return dst
	case format.List:
		for _, e := range v.List {
			dst = flatten(dst, e)
		}
		return dst
	}
	return append(dst, v)
}

func sameValues(got []format.Value, want []pqgo.Value, leaf *node) bool {
	return slices.EqualFunc(got, want, func(v format.Value, w pqgo.Value) bool {
		switch w.Kind() {
		case pqgo.Boolean:
			return v.Kind == format.Bool && (v.Int == 1) == w.Boolean()
		case pqgo.Int32:
			if leaf.isUnsigned() {
				return v.Kind == format.Int && v.Int == int64(w.Uint32())
			}
			return v.Kind == format.Int && v.Int == int64(w.Int32())
		case pqgo.Int64:
			return v.Kind == format.Int && v.Int == w.Int64()
		case pqgo.Float:
			return v.Kind == format.Float && math.Float32bits(float32(v.Float)) == math.Float32bits(w.Float())
		case pqgo.Double:
			return v.Kind == format.Float && math.Float64bits(v.Float) == math.Float64bits(w.Double())
		}
		return (v.Kind == format.String || v.Kind == format.Bytes) && string(v.Bytes) == string(w.ByteArray())
	})
}
