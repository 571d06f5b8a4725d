package decoders_test

import (
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/decoders"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// TestRowsBelow: what is known of the places of records without reading the file.
func TestRowsBelow(t *testing.T) {
	for _, c := range []struct {
		uri   string
		below int64
		bytes bool
	}{
		{"a.jsonl", 70, true}, {"a.jsonl.gz", 0, true}, {"a.txt", 1, false}, {"a.parquet", 0, false}, {"a.tar", 0, false}, {"a.json", 0, false},
	} {
		f, err := decoders.ByPath(c.uri)
		if err != nil {
			t.Fatal(err)
		}
		if below := format.RowsBelow(f, store.Object{URI: c.uri, Size: 70}); below != c.below || format.InBytes(f) != c.bytes {
			t.Errorf("%s: rows are below %d, in bytes: %v; want %d, %v", c.uri, below, format.InBytes(f), c.below, c.bytes)
		}
	}
}
