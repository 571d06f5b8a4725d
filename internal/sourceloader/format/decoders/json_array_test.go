package decoders_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/formattest"
	"github.com/millrace-data/millrace/internal/sourceloader/format/json"
	"github.com/millrace-data/millrace/internal/sourceloader/format/text"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

func TestJSONEdges(t *testing.T) {
	for _, c := range []struct{ name, data, want string }{
		{"white space", " \r\n\t", ""},
		{"empty array", " [ ] ", ""},
		{"one element", `[{"a":1}]`, "0: 1"},
		{"not objects", `[1,{"a":2},null]`, "0: error: /a.json: element 0 (byte 1) is a JSON number, but a record is an object: {\"text\": ...}: fix it\n1: 2\n" +
			"2: error: /a.json: element 2 (byte 11) is a JSON null, but a record is an object: {\"text\": ...}: fix it"},
		{"comma missing", `[{"a":1} {"a":2}]`, "0: 1\nuser: chunk 0: /a.json: byte 9, after element 0: a comma or ] is expected here, not \"{\""},
		{"comma before", `[,{"a":1}]`, "user: chunk 0: /a.json: element 0 (byte 1) is not valid JSON: at its byte 1, which is \",\": a value is expected here: fix the file, as what follows in an array cannot be read"},
		{"comma after", `[{"a":1},]`, "0: 1\nuser: chunk 0: /a.json: element 1 (byte 9) is not valid JSON: at its byte 1, which is \"]\": a value is expected here: fix the file, as what follows in an array cannot be read"},
		{"not closed", `[{"a":1}`, "0: 1\nuser: chunk 0: /a.json: the array is cut off at byte 8, after 1 elements: copy the file again"},
		{"cut in an element", `[{"a":1},{"a`, "0: 1\nuser: chunk 0: /a.json: element 1 (byte 9) is not valid JSON: it ends too soon: a string is open: fix the file, as what follows in an array cannot be read"},
		{"more after it", "[{\"a\":1}]\n[]", "0: 1\nuser: chunk 0: /a.json: byte 10: only white space may follow the end of the JSON value, not \"[\""},
		{"neither", `"text"`, "user: counting chunks: /a.json: it begins with \"\\\"\", but a JSON file of records begins with [ (array of objects) or { (JSON Lines)"},
		{"lines", "\n{\"a\":1}\nbroken\n{\"a\":2}\n", "1: 1\n9: error: /a.json:3: (byte 9) the line is not valid JSON: at its byte 1, which is \"b\": a value is expected here: fix the line\n16: 2"},
		{"one object on many lines", "{\n\"a\":\n1}\n", "0: 1"},
		{"two objects on many lines", "{\n\"a\":1}\n{\n\"a\":2}\n", "0: 1\nuser: chunk 0: /a.json: byte 9: only white space may follow the end of the JSON value, not \"{\"; if it has an object on each line, set the source's format: jsonl, which can skip a bad one"},
		{"cut object", "{\n\"a\":", "user: chunk 0: /a.json: the object at byte 0 is not valid JSON: it ends too soon: a value is expected here: fix the file; if it has an object on each line, set the source's format: jsonl, which can skip a bad one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := printAll(t, json.Format{}, map[string][]byte{"/a.json": []byte(c.data)}, "/a.json", "a"); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestJSONArrayStreams: elements cross the buffer in every way, one is longer
// than it, and reading stops soon after the callback does.
func TestJSONArrayStreams(t *testing.T) {
	var b bytes.Buffer
	var want []string
	b.WriteString("[")
	for i := range 3000 {
		n := i * 37 % 1009
		if i == 1500 {
			n = 2_000_000
		}
		if i > 0 {
			b.WriteString(" ,\n")
		}
		fmt.Fprintf(&b, `{"a":"%s"}`, strings.Repeat("é", n))
		want = append(want, fmt.Sprintf("%d: %q", i, strings.Repeat("é", n)))
	}
	b.WriteString("]")
	memory, obj := stored(t, map[string][]byte{"/a.json": b.Bytes()}, "/a.json")
	records, err := formattest.ReadAll(t.Context(), json.Format{}, memory, obj, format.Options{Columns: []string{"a"}})
	if err != nil || len(records) != len(want) {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for i, r := range records {
		if formattest.Print(r) != want[i] {
			t.Fatalf("record %d: %.60s", i, formattest.Print(r))
		}
	}
	st := store.NewMetered(memory)
	stop := fmt.Errorf("enough")
	if err := format.Read(t.Context(), json.Format{}, st, obj, 0, format.Options{}, func(*format.Record) error { return stop }); err != stop || st.Meter().Bytes > 1<<20 {
		t.Errorf("%v after %+v", err, st.Meter())
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ name, data, want string }{
		{"/a.txt", "", `0: ""`},
		{"/a.txt", "\xef\xbb\xbfa\r\nb\x00", `0: "\ufeffa\r\nb\x00"`},
		{"/a.txt", "ab\xc3", "0: error: /a.txt: byte 2 is not valid UTF-8: convert the file to UTF-8"},
		{"/a.txt.gz", "plain text", "user: chunk 0: decompressing /a.txt.gz: damaged gzip data before byte 10: gzip: invalid header: copy or compress the file again"},
		{"/a.txt.zst", "", "user: chunk 0: decompressing /a.txt.zst: the zstd data is cut off at byte 0, the end of the file: copy the file again"},
	} {
		if got := printAll(t, text.Format{}, map[string][]byte{c.name: []byte(c.data)}, c.name, "text"); got != c.want {
			t.Errorf("%s %q:\ngot\n%s\nwant\n%s", c.name, c.data, got, c.want)
		}
	}
	memory, obj := stored(t, map[string][]byte{"/a.txt": []byte("x")}, "/a.txt")
	st := store.NewMetered(memory)
	if _, _, err := count(t.Context(), text.Format{}, st, obj, format.Options{Columns: []string{"path"}}); err != nil || st.Meter().Opens != 0 {
		t.Errorf("the path alone: %v, %+v", err, st.Meter())
	}
}

// TestPoison: what is kept after the callback is spoilt, and what is copied is not.
func TestPoison(t *testing.T) {
	st, obj := stored(t, map[string][]byte{"/a.jsonl": []byte(`{"a":"text","t":[1,2],"l":["x"]}`)}, "/a.jsonl")
	opt := format.Options{Columns: []string{"a", "t", "l"}}
	var kept []format.Value
	var copied format.Record
	err := format.Read(t.Context(), formattest.Poison(json.Lines{}), st, obj, 0, opt, func(r *format.Record) error {
		kept, copied = append(kept, r.Values...), formattest.Clone(r)
		return nil
	})
	if got := formattest.Print(copied); err != nil || got != `0: "text" tokens [1 2] ["x"]` {
		t.Errorf("copied: %s, %v", got, err)
	}
	if string(kept[0].Bytes) != "\xaa\xaa\xaa\xaa" || kept[1].Tokens[0] == 1 || kept[2].List[0].Kind == format.String {
		t.Errorf("kept: %+v", kept)
	}
}
