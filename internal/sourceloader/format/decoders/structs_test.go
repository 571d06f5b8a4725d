package decoders_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pqgo "github.com/parquet-go/parquet-go"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/decoders"
	"github.com/millrace-data/millrace/internal/sourceloader/format/formattest"
)

// The files of internal/tools/chat/structs.py: the records of talks.jsonl, and some of them
// as Hugging Face datasets writes them, with nested columns in every form that pyarrow writes.
var (
	talkColumns = []string{"messages", "id", "tools", "meta"}
	talkFiles   = []string{"talks.parquet", "talks-v2.parquet", "talks-stream.arrow", "talks.feather"}
	hubFiles    = []string{"hub.parquet", "hub-json.parquet", "hub.arrow"}
)

const talkRecords = 14

// TestStructs: a list of structs is what the list of objects in JSON Lines is, to the byte.
func TestStructs(t *testing.T) {
	for lines, files := range map[string][]string{"talks.jsonl": talkFiles, "hub.jsonl": hubFiles} {
		columns := talkColumns
		if lines == "hub.jsonl" {
			columns = talkColumns[:1]
		}
		want := values(t, filepath.Join("testdata", lines), columns)
		for _, name := range files {
			got := values(t, filepath.Join("testdata", name), columns)
			for i := range min(len(got), len(want)) {
				if got[i] != want[i] {
					t.Errorf("%s: record %d is\n%s\nwant\n%s", name, i, got[i], want[i])
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s: %d records, want %d", name, len(got), len(want))
			}
		}
	}
}

func TestStructsConformance(t *testing.T) {
	for _, name := range talkFiles {
		f, err := decoders.ByPath(name)
		if err != nil {
			t.Fatal(err)
		}
		data := talkFile(t, name)
		c := formattest.Case{
			Format: f, File: "/" + name, Files: map[string][]byte{"/" + name: data}, Columns: talkColumns, Records: talkRecords,
			Missing: "message", MissingIsError: true, Unframed: strings.Contains(name, "stream"),
		}
		t.Run(name, func(t *testing.T) { formattest.Run(t, c) })
	}
}

func talkFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestStructLimits: lists in structs count as elements, and the text of a row has a limit; the
// rows that keep to them are read, with what they are read as without.
func TestStructLimits(t *testing.T) {
	for _, name := range talkFiles {
		f, err := decoders.ByPath(name)
		if err != nil {
			t.Fatal(err)
		}
		st, obj := stored(t, map[string][]byte{"/" + name: talkFile(t, name)}, "/"+name)
		columns := []string{"messages", "tools"}
		all, err := formattest.ReadAll(t.Context(), f, st, obj, format.Options{Columns: columns})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			opt  format.Options
			is   error
			good []int // rows
		}{
			{format.Options{MaxElements: 3}, format.ErrTooMany, []int{0, 1, 3, 4, 5, 6, 8}},
			{format.Options{MaxRecord: 150}, format.ErrTooLong, []int{0, 1, 3, 4, 5, 6, 8}},
			{format.Options{MaxRecord: 70}, format.ErrTooLong, []int{4, 5, 6, 8}},
		} {
			c.opt.Columns = columns
			got, err := formattest.ReadAll(t.Context(), f, st, obj, c.opt)
			if err != nil || len(got) != len(all) {
				t.Fatalf("%s: %d records: %v", name, len(got), err)
			}
			var good []int
			for i := range got {
				switch {
				case got[i].Err == nil:
					good = append(good, i)
					if formattest.Print(got[i]) != formattest.Print(all[i]) {
						t.Errorf("%s: row %d with %+v: %s", name, i, c.opt, formattest.Print(got[i]))
					}
				case !errors.Is(got[i].Err, c.is) || fault.ClassOf(got[i].Err) != fault.User:
					t.Errorf("%s: row %d with %+v: %v", name, i, c.opt, got[i].Err)
				}
			}
			if !slices.Equal(good, c.good) {
				t.Errorf("%s: with %+v rows %d are read, want %d", name, c.opt, good, c.good)
			}
		}
	}
}

// TestStructValues: values that JSON text cannot hold are bad records.
func TestStructValues(t *testing.T) {
	type part struct {
		Text string   `parquet:"text"`
		JSON string   `parquet:"json,json"`
		X    *float64 `parquet:"x,optional"`
		Raw  []byte   `parquet:"raw,optional"`
	}
	type row struct {
		Parts []part `parquet:"parts,list"`
	}
	rows := []row{
		{[]part{{"a", `{"b": [1, 2]}`, new(1.0), nil}}},
		{[]part{{"a", "[", nil, nil}}},
		{[]part{{"a", "1", new(math.NaN()), nil}}},
		{[]part{{"\xff", "1", nil, nil}}},
		{[]part{{"a", "1", nil, []byte{0xff, 0xfe}}}},
		{[]part{{"", "1", nil, []byte("text")}, {"b", `"c"`, new(-1e-9), nil}}},
	}
	var b bytes.Buffer
	w := pqgo.NewGenericWriter[row](&b)
	if _, err := w.Write(rows); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	st, obj := stored(t, map[string][]byte{"/a.parquet": b.Bytes()}, "/a.parquet")
	f, err := decoders.ByPath("a.parquet")
	if err != nil {
		t.Fatal(err)
	}
	got, err := formattest.ReadAll(t.Context(), f, st, obj, format.Options{Columns: []string{"parts"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		`[{"text":"a","json":{"b": [1, 2]},"x":1.0}]`,
		`field "parts[].json": it is of type json, and its text is no JSON`,
		`field "parts[].x": the number NaN has no JSON form`,
		`field "parts[].text": byte 0 of the text is not valid UTF-8`,
		`field "parts[].raw": it is binary, which JSON text cannot hold`,
		`[{"text":"","json":1,"raw":"text"} {"text":"b","json":"c","x":-1e-09}]`,
	} {
		if got[i].Err != nil {
			if !strings.Contains(got[i].Err.Error(), want) || !strings.Contains(got[i].Err.Error(), `column "parts": `) || fault.ClassOf(got[i].Err) != fault.User {
				t.Errorf("row %d: %v, want %s", i, got[i].Err, want)
			}
		} else if s := formattest.Show(got[i].Values[0]); s != want {
			t.Errorf("row %d: %s, want %s", i, s, want)
		}
	}
}

// TestStructsDamaged: bytes that are turned give the user's error, or other values.
func TestStructsDamaged(t *testing.T) {
	errs := map[string]int{}
	read := func(name string, data []byte) {
		f, err := decoders.ByPath(name)
		if err != nil {
			t.Fatal(err)
		}
		st, obj := stored(t, map[string][]byte{"/" + name: data}, "/"+name)
		_, err = formattest.ReadAll(t.Context(), f, st, obj, format.Options{Columns: talkColumns})
		if err != nil && fault.ClassOf(err) != fault.User {
			t.Errorf("%s: %v is of class %s", name, err, fault.ClassOf(err))
		}
		if err != nil {
			errs[err.Error()[strings.LastIndex(err.Error(), ": ")+2:]]++
		}
	}
	for _, name := range talkFiles {
		data := talkFile(t, name)
		for i := 5; i < len(data); i += 41 {
			damaged := bytes.Clone(data)
			damaged[i] ^= 1 << (i % 8)
			read(name, damaged)
		}
	}
	const uneven = "the columns of the group do not fit each other (damaged)"
	if errs[uneven] == 0 {
		t.Errorf("no damage gave %q", uneven)
	}
	errs = map[string]int{}
	if read("talks.parquet", talkFile(t, "talks-damaged.parquet")); errs[uneven] != 1 {
		t.Errorf("the damaged file: %v", errs)
	}
}

// TestStructsHeld compares what a reader of structs says it holds with the heap.
func TestStructsHeld(t *testing.T) {
	type turn struct{ Role, Content string }
	type row struct {
		Messages []turn `parquet:"messages,list"`
	}
	long := row{}
	for i := range 20_000 {
		long.Messages = append(long.Messages, turn{"user", noise(100)[:i%100]})
	}
	var b bytes.Buffer
	w := pqgo.NewGenericWriter[row](&b)
	if _, err := w.Write([]row{long, long}); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	st, obj := stored(t, map[string][]byte{"/a.parquet": b.Bytes()}, "/a.parquet")
	f, err := decoders.ByPath("a.parquet")
	if err != nil {
		t.Fatal(err)
	}
	held, used, err := heldAndUsed(t.Context(), f, st, obj, []string{"messages"})
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	t.Logf("%d bytes, of the heap %d", held, used)
	if held < used/2 || held > 2*used {
		t.Errorf("the reader says that it holds %d bytes, and takes %d", held, used)
	}
}
