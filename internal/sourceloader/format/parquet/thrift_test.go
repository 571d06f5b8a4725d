package parquet

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format/formattest"
)

// TestBooleanRepetition reads what fastparquet 2026.9 wrote with has_nulls='infer': booleans where the schema has its
// repetitions. (pyarrow and DuckDB give the bytes of the levels as the first text.)
func TestBooleanRepetition(t *testing.T) {
	data, err := os.ReadFile("testdata/fastparquet-infer.parquet")
	if err != nil {
		t.Fatal(err)
	}
	st, obj := formattest.InMemory(data)
	c, err := formattest.ReadColumns(Format{}, st, obj, []string{"id", "text", "tag"})
	if err != nil || len(c.Bad) > 0 {
		t.Fatal(err, c.Bad)
	}
	want := []string{"0 1 2 3", "one null  four", "x y x z"}
	for i, values := range c.Values {
		var got []string
		for _, v := range values {
			got = append(got, formattest.Show(v))
		}
		if text := strings.Join(got, " "); text != want[i] {
			t.Errorf("column %d: %q, want %q", i, text, want[i])
		}
	}
}

// TestBooleanElsewhere: a boolean in the place of any other integer is damage.
func TestBooleanElsewhere(t *testing.T) {
	data, err := os.ReadFile("testdata/fastparquet-infer.parquet")
	if err != nil {
		t.Fatal(err)
	}
	const column = "\x15\x04\x15\x80\x01\x12\x18\x02id" // INT64, 64 bits, required, named id
	for name, c := range map[string]struct{ from, to string }{
		"type of a column":    {column, "\x12" + column[2:]},
		"width of a column":   {column, column[:2] + "\x12" + column[5:]},
		"rows of a row group": {"\x16\xbc\x02\x16\x08\x00", "\x16\xbc\x02\x12\x00"}, // as deep as the schema's fields
	} {
		if n := bytes.Count(data, []byte(c.from)); n != 1 {
			t.Fatalf("%s: %d places in the file", name, n)
		}
		damaged := bytes.Replace(data, []byte(c.from), []byte(c.to), 1)
		damaged[len(damaged)-8] -= byte(len(data) - len(damaged)) // the length of the footer
		st, obj := formattest.InMemory(damaged)
		_, err := formattest.ReadColumns(Format{}, st, obj, []string{"id"})
		if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "type 2 where an integer belongs") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
