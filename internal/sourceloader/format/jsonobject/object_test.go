package jsonobject

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/fieldpath"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/testdata"
)

// asField wraps a value in an object, so that the object reader reads it.
func asField(value []byte) []byte {
	return append(append([]byte(`{"v":`), value...), '}')
}

func TestJSONTestSuite(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testdata.Dir(t), "corrupt/json/JSONTestSuite/*.json"))
	if err != nil || len(files) < 300 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	reader, err := New([]string{"v"}, format.DefaultMaxElements)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		got := IsValue(data)
		if want := name[0] == 'y'; name[0] != 'i' && got != want {
			t.Errorf("%s: valid %v, want %v: %.60q", name, got, want, data)
		}
		if strings.Contains(name, "n_string_UTF8_surrogate") || !utf8.Valid(data) {
			if got {
				t.Errorf("%s: invalid UTF-8 was taken: %.60q", name, data)
			}
		}
		if _, problem := reader.Read(asField(data)); name[0] != 'i' && (problem == "") != got {
			t.Errorf("%s as a field: %q, want valid %v", name, problem, got)
		}
	}
}

func TestNesting(t *testing.T) {
	for _, c := range []struct {
		open, close string
		depth       int
		want        bool
	}{
		{"[", "]", maxDepth, true}, {"[", "]", maxDepth + 1, false},
		{`{"a":`, "1}", 1, true}, {"[", "", 100_000, false}, {"[", "]", 5_000_000, false}, {`{"":`, "", 1_000_000, false},
	} {
		data := []byte(strings.Repeat(c.open, c.depth) + strings.Repeat(c.close, c.depth))
		if got := IsValue(data); got != c.want {
			t.Errorf("%d times %s: valid %v, want %v", c.depth, c.open, got, c.want)
		}
	}
	reader, _ := New([]string{"v", "v[]"}, format.DefaultMaxElements)
	deep := strings.Repeat("[", maxDepth-1) + "1" + strings.Repeat("]", maxDepth-1)
	if _, problem := reader.Read(asField([]byte(deep))); problem != "" {
		t.Error(problem)
	}
}

// TestStrings: strings of a record are taken as it is stepped over, each for all columns that want it.
func TestStrings(t *testing.T) {
	reader, err := New([]string{"k", "both", "both", "both.x", "last", "plain"}, format.DefaultMaxElements)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Release()
	for range 2 { // in scratch that is there already, too
		doc := `{"\u006bb":"other","\u006b":"\n\tx","bot\u0068":"a\\\"b","last":"\n1","last":2,"last":"\u00e9","plain":"pl"}`
		if _, problem := reader.Read([]byte(doc)); problem == "" || !strings.Contains(problem, "both.x") {
			t.Errorf("a string has no field x: %q", problem)
		}
		values, problem := reader.Read([]byte(strings.Replace(doc, `"bot\u0068":"a\\\"b",`, "", 1)))
		if problem != "" {
			t.Fatal(problem)
		}
		if got := fmt.Sprintf("%q %v %q %q", values[0].Bytes, values[1].Absent && values[2].Absent && values[3].Absent, values[4].Bytes, values[5].Bytes); got != `"\n\tx" true "é" "pl"` {
			t.Error(got)
		}
	}
	twice, err := New([]string{"both", "both"}, format.DefaultMaxElements)
	if err != nil {
		t.Fatal(err)
	}
	if values, problem := twice.Read([]byte(`{"bot\u0068":"a\\\"b"}`)); problem != "" || string(values[0].Bytes) != `a\"b` || string(values[1].Bytes) != `a\"b` {
		t.Errorf("%v, %q", values, problem)
	}
}

func TestPick(t *testing.T) {
	doc := `{"a":{"b":[{"c":1},{"c":"x\n"},{}],"k.ey":true},"n":null,"dup":1,"dup":2,"e\u0073c":"\ud800|\ud83d\ude00|\u00e9","t":[1,2147483647,-2147483648],"w":[1,2147483648],"f":[1.5],"m":[[1],["a"],{"o":{}}],"z":[ ],"zs":[[],[1],[[]]],"huge":1e999,"":"empty"}`
	for column, want := range map[string]string{
		"a.b[].c": `[1 "x\n" <nil>]`, `a.k\.ey`: "true", "n": "<nil>", "n.x": "<nil>", "n[]": "<nil>", "dup": "2", "esc": "\"\ufffd|😀|é\"",
		"t": "tokens [1 2147483647 -2147483648]", "w": "[1 2147483648]", "f": "[1.5]", "m": `[tokens [1] ["a"] "{\"o\":{}}"]`, "t[]": "[1 2147483647 -2147483648]",
		"z": "[]", "zs": "[[] tokens [1] [[]]]", "zs[]": "[[] tokens [1] [[]]]",
		"none": "<nil>", "a.none.x": "<nil>",
		"a.b[].c.d": `! "a.b[].c" is a number and has no field "d": correct the name in the spec, or fix the record`,
		"a.b[].c[]": `! "a.b[].c" is a number and no list: correct the name in the spec, or fix the record`,
		"zs[].x":    `! an element of "zs" is a list: write "zs[][].x" in the spec, or fix the record`,
		"f[].x":     `! an element of "f" is a number and has no field "x": correct the name in the spec, or fix the record`,
		"t.x":       `! "t" is a list: write "t[].x" in the spec, or fix the record`,
		"a[]":       `! "a" is an object and no list: correct the name in the spec, or fix the record`,
		"esc.x":     `! "esc" is a string and has no field "x": correct the name in the spec, or fix the record`,
		"huge":      `! the number 1e999 is beyond a 64-bit float: fix the record`,
	} {
		reader, err := New([]string{column}, format.DefaultMaxElements)
		if err != nil {
			t.Fatal(err)
		}
		values, problem := reader.Read([]byte(doc))
		got, named := strings.CutPrefix(problem, fmt.Sprintf("field %q: ", column))
		if got = "! " + got; problem == "" {
			got = plain(values[0])
		}
		if got != want || named != (reader.Field() != nil) {
			t.Errorf("%s = %s, want %s (%s, %v)", column, got, want, problem, reader.Field())
		}
	}
}

func plain(v format.Value) string {
	switch v.Kind {
	case format.String:
		return fmt.Sprintf("%q", v.Bytes)
	case format.Int:
		return fmt.Sprint(v.Int)
	case format.Float:
		return fmt.Sprint(v.Float)
	case format.Bool:
		return fmt.Sprint(v.Int == 1)
	case format.Tokens:
		return fmt.Sprint("tokens ", v.Tokens)
	case format.List:
		parts := make([]string, len(v.List))
		for i, e := range v.List {
			parts[i] = plain(e)
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return "<nil>"
}

func TestNumbers(t *testing.T) {
	reader, _ := New([]string{"v"}, format.DefaultMaxElements)
	for _, c := range []struct {
		in   string
		want format.Value
	}{
		{"0", format.Value{Kind: format.Int}},
		{"-0", format.Value{Kind: format.Int}},
		{"-1", format.Value{Kind: format.Int, Int: -1}},
		{"9223372036854775807", format.Value{Kind: format.Int, Int: math.MaxInt64}},
		{"-9223372036854775808", format.Value{Kind: format.Int, Int: math.MinInt64}},
		{"9223372036854775808", format.Value{Kind: format.Float, Float: 1 << 63}},
		{"-9223372036854775809", format.Value{Kind: format.Float, Float: -1 << 63}},
		{"123456789012345678901234567890", format.Value{Kind: format.Float, Float: 123456789012345678901234567890}},
		{"1.0", format.Value{Kind: format.Float, Float: 1}},
		{"1e3", format.Value{Kind: format.Float, Float: 1000}},
		{"1e-400", format.Value{Kind: format.Float}},
	} {
		values, problem := reader.Read(asField([]byte(c.in)))
		if problem != "" || values[0].Kind != c.want.Kind || values[0].Int != c.want.Int || values[0].Float != c.want.Float {
			t.Errorf("%s reads as %+v, %s", c.in, values, problem)
		}
	}
	for _, in := range []string{"1e999", "-1E+999"} {
		if values, problem := reader.Read(asField([]byte(in))); !strings.Contains(problem, "beyond") {
			t.Errorf("%s reads as %+v, %s", in, values, problem)
		}
	}
}

// agrees checks the scanner and the reader against encoding/json, which differs
// only in that it takes invalid UTF-8.
func agrees(t *testing.T, data []byte) {
	t.Helper()
	want := json.Valid(data) && utf8.Valid(data)
	if got := IsValue(data); got != want {
		t.Fatalf("valid %v, encoding/json says %v: %q", got, want, data)
	}
	var doc map[string]any
	if !want || json.Unmarshal(data, &doc) != nil || doc == nil {
		return
	}
	for key, value := range doc {
		reader, err := New([]string{fieldpath.Path{{Key: key}}.String()}, format.DefaultMaxElements)
		if err != nil {
			continue // the empty key has no path
		}
		values, problem := reader.Read(data)
		if text, ok := value.(string); ok && (problem != "" || string(values[0].Bytes) != text) {
			t.Fatalf("%q: %+v, %s; encoding/json has %q in %q", key, values, problem, text, data)
		}
		if list, ok := value.([]any); ok && problem == "" && len(list) != len(values[0].List)+len(values[0].Tokens) {
			t.Fatalf("%q has %d elements, encoding/json has %d in %q", key, len(values[0].List)+len(values[0].Tokens), len(list), data)
		}
	}
}

var jsonSeeds = []string{
	`{"text":"abc","n":[1,2]}`, `{"a":{"b":null},"c":[{},[]]}`, `{"t":"\ud83d\ude00\ud800 \\ \/ é"}`, `[1,-0.5e+7,true]`, `"x"`, `{"a":1,}`, `{"a" 1}`, `{"":""}`, "{\"a\":\"\x01\"}", `{"12345678":"1234567\"8"}`,
}

func FuzzJSON(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(agrees)
}

// TestJSONAgainstStandard changes valid documents a little, many times.
func TestJSONAgainstStandard(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	alphabet := []byte(`{}[]",:\u0123eE+-.tfn ab` + "\n\x00\xc3\xa9\xff")
	for range 200_000 {
		data := []byte(jsonSeeds[rng.IntN(len(jsonSeeds))])
		for range rng.IntN(4) {
			at := rng.IntN(len(data))
			switch c := alphabet[rng.IntN(len(alphabet))]; rng.IntN(3) {
			case 0:
				data[at] = c
			case 1:
				data = append(data[:at+1], data[at:]...)
				data[at] = c
			case 2:
				if len(data) > 1 {
					data = append(data[:at], data[at+1:]...)
				}
			}
		}
		agrees(t, data)
	}
}

// TestShort: a valid document that is cut anywhere is short, not wrong, so that
// a stream reads on.
func TestShort(t *testing.T) {
	for _, doc := range jsonSeeds[:4] {
		for i := range len(doc) {
			s := scanner{data: []byte(doc[:i])}
			if end := s.value(0); end < 0 && !s.short() {
				t.Errorf("%q is called wrong: %s", doc[:i], s.problem())
			}
		}
	}
}

// TestScratch: values of one record, all unescaped into the same scratch, stay
// apart, also from keys that are unescaped between them.
func TestScratch(t *testing.T) {
	reader, _ := New([]string{"a", "b", "c[]", "d.x"}, format.DefaultMaxElements)
	long := strings.Repeat(`\n`, 5000)
	values, problem := reader.Read([]byte(`{"c":["\t1","\t2"],"a":"\t3","b":"` + long + `","d":{"\u0079\u0079":0,"\u0078":"\t4"}}`))
	if problem != "" || string(values[0].Bytes) != "\t3" || strings.Trim(string(values[1].Bytes), "\n") != "" || len(values[1].Bytes) != 5000 ||
		string(values[2].List[0].Bytes) != "\t1" || string(values[2].List[1].Bytes) != "\t2" || string(values[3].Bytes) != "\t4" {
		t.Errorf("%+v, %s", values, problem)
	}
}
