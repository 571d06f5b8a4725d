package parquet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	pqgo "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	pq "github.com/parquet-go/parquet-go/format"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/formattest"
)

// shortParquet writes a file of columns with dictionaries, and leaves the dictionaries'
// headers out of their sizes, as old writers did.
func shortParquet(t testing.TB, createdBy string, rows int) []byte {
	t.Helper()
	type row struct {
		A string `parquet:"a,dict"`
		B string `parquet:"b,dict,zstd"`
		C int64  `parquet:"c,dict"`
	}
	var b bytes.Buffer
	w := pqgo.NewGenericWriter[row](&b, pqgo.MaxRowsPerRowGroup(int64(rows+1)/2))
	for range rows {
		if _, err := w.Write([]row{{"always the same", "and again", 7}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data := b.Bytes()
	size := int(binary.LittleEndian.Uint32(data[len(data)-8:]))
	body := data[:len(data)-8-size]
	var meta pq.FileMetaData
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), data[len(body):len(data)-8], &meta); err != nil {
		t.Fatal(err)
	}
	meta.CreatedBy = createdBy
	end := int64(0) // of the pages; their index comes after
	for _, group := range meta.RowGroups {
		for i := range group.Columns {
			column := &group.Columns[i].MetaData
			var h pageHeader
			n, err := h.decode(body[column.DictionaryPageOffset:])
			if err != nil || h.kind != pq.DictionaryPage {
				t.Fatalf("the column does not begin with a dictionary: %v %v", h.kind, err)
			}
			end = max(end, column.DictionaryPageOffset+column.TotalCompressedSize)
			column.TotalCompressedSize -= int64(n)
		}
	}
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), &meta)
	if err != nil {
		t.Fatal(err)
	}
	data = append(bytes.Clone(body[:end]), footer...)
	return append(binary.LittleEndian.AppendUint32(data, uint32(len(footer))), "PAR1"...)
}

// TestShortSizes reads columns whose last page lies outside their size, in whole or
// with its header, if an old writer made them, and refuses them otherwise.
func TestShortSizes(t *testing.T) {
	for _, rows := range []int{2, 100, 10_000} {
		for writer, read := range map[string]bool{
			"parquet-mr": true, "parquet-mr version 1.2.8 (build x)": true, "parquet-mr version 1.1.11": true,
			"parquet-mr version 1.2.9 (build x)": false, "parquet-mr version 1.10.0": false, "parquet-cpp version 1.0.0": false, "": false,
		} {
			data := shortParquet(t, writer, rows)
			n, err := 0, error(nil)
			for group := range 2 {
				err = readShort(t, data, group, func(r *format.Record) {
					if string(r.Values[0].Bytes) != "always the same" || string(r.Values[1].Bytes) != "and again" || r.Values[2].Int != 7 || r.Err != nil {
						t.Fatalf("%q, row %d: %v %v", writer, r.Row, r.Values, r.Err)
					}
					n++
				})
				if err != nil {
					break
				}
			}
			switch {
			case read && (err != nil || n != rows):
				t.Errorf("%q: %d of %d rows, %v", writer, n, rows, err)
			case !read && fault.ClassOf(err) != fault.User:
				t.Errorf("%q: %d rows, %v", writer, n, err)
			}
		}
	}
}

func readShort(t *testing.T, data []byte, group int, fn func(*format.Record)) error {
	st, obj := formattest.InMemory(data)
	return format.Read(t.Context(), Format{}, st, obj, group, format.Options{Columns: []string{"a", "b", "c"}}, func(r *format.Record) error {
		fn(r)
		return nil
	})
}

// TestShortSizesCut takes a byte after the other off the end of the pages: an old
// writer's file is no reason to read what is not there.
func TestShortSizesCut(t *testing.T) {
	data := shortParquet(t, "parquet-mr", 100)
	size := int(binary.LittleEndian.Uint32(data[len(data)-8:]))
	end := len(data) - 8 - size
	for n := 1; n < 60; n++ {
		cut := append(bytes.Clone(data[:end-n]), data[end:]...)
		err := readShort(t, cut, 1, func(*format.Record) {})
		if fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), "") {
			t.Fatalf("%d bytes less: %v", n, err)
		}
	}
}
