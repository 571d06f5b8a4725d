package tokenize

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
)

// specialRow is a line of testdata/special.jsonl, made by tiktoken 0.14: encode with
// allowed_special, with disallowed_special=() for the ids, and with all others disallowed
// for whether it refuses the text.
type specialRow struct {
	Encoding string
	Text     string
	Allow    []string
	IDs      []int32
	Refused  bool
}

func TestSpecials(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "special.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]specialRow{}
	for line := range bytes.Lines(data) {
		var row specialRow
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		rows[row.Encoding] = append(rows[row.Encoding], row)
	}
	for _, name := range []string{"r50k_base", "p50k_base", "cl100k_base"} {
		t.Run(name, func(t *testing.T) {
			if len(rows[name]) < 30 {
				t.Fatalf("only %d rows", len(rows[name]))
			}
			for _, row := range rows[name] {
				checkSpecial(t, load(t, name), row)
			}
		})
	}
}

func checkSpecial(t *testing.T, e *Encoding, row specialRow) {
	t.Helper()
	lenient, err := e.Specials(row.Allow, nil)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := lenient.Append([]int32{-1}, []byte(row.Text))
	if err != nil || !slices.Equal(ids[1:], row.IDs) {
		t.Errorf("%s %q with %v: %v, %v; tiktoken has %v", e.Name(), row.Text, row.Allow, ids, err, row.IDs)
	}
	others := slices.DeleteFunc(e.SpecialNames(), func(name string) bool { return slices.Contains(row.Allow, name) })
	strict, err := e.Specials(row.Allow, others)
	if err != nil {
		t.Fatal(err)
	}
	ids, err = strict.Append(nil, []byte(row.Text))
	switch {
	case row.Refused && (err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "<|") || ids != nil):
		t.Errorf("%s %q with %v only: %v, %v; tiktoken refuses it", e.Name(), row.Text, row.Allow, ids, err)
	case !row.Refused && (err != nil || !slices.Equal(ids, row.IDs)):
		t.Errorf("%s %q with %v only: %v, %v; tiktoken has %v", e.Name(), row.Text, row.Allow, ids, err, row.IDs)
	}
}

// TestSpecialsOfBytes needs no file: the one special token is 256.
func TestSpecialsOfBytes(t *testing.T) {
	e := Bytes()
	s, err := e.Specials(e.SpecialNames(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := s.Append(nil, []byte("<|a<|endoftext|>b")); err != nil || !slices.Equal(ids, []int32{'<', '|', 'a', 256, 'b'}) {
		t.Errorf("%v, %v", ids, err)
	}
	if _, err := e.Specials([]string{"<|fim_prefix|>"}, nil); err == nil || !strings.Contains(err.Error(), "it has <|endoftext|>") {
		t.Errorf("a token that bytes does not have: %v", err)
	}
}

// TestFinderTakesTheLongest: of names with a common prefix the longest is found, and
// names without one are found too.
func TestFinderTakesTheLongest(t *testing.T) {
	f := newFinder([]string{"ab", "abc", "x"}, map[string]int32{"ab": 1, "abc": 2, "x": 3})
	var found []string
	text := []byte("aababcxab")
	for from := 0; ; {
		at, n := f.next(text, from)
		if at < 0 {
			break
		}
		found = append(found, f.tokens[n].name)
		from = at + len(f.tokens[n].name)
	}
	if !slices.Equal(found, []string{"ab", "abc", "x", "ab"}) {
		t.Errorf("found %v", found)
	}
}
