package filter

import (
	"os"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// TestManual: the reference has a row for every function and no other, and its examples keep the records that they
// are about.
func TestManual(t *testing.T) {
	page, err := os.ReadFile("../../../../jobspec/filter.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(page), "| function |")
	rows, _, _ = strings.Cut(rows, "\n\n")
	for _, f := range functions() {
		if !strings.Contains(rows, "\n| `"+f.usage+"` |") {
			t.Errorf("jobspec/filter.md has no row of %s", f.usage)
		}
	}
	if n := strings.Count(rows, "\n| `"); n != len(functions()) {
		t.Errorf("jobspec/filter.md has %d functions, the language %d", n, len(functions()))
	}
	_, examples, _ := strings.Cut(string(page), "```\n")
	examples, _, _ = strings.Cut(examples, "```")
	good := record{
		"lang": text_("de"), "score": real_(0.5), "url": text_("https://example.org/"), "messages[].role": list_(text_("user"), text_("assistant")),
		"messages": list_(int_(0), int_(0)), "meta.year": int_(2021), "title": text_("A title"),
	}
	for line := range strings.Lines(examples) {
		f, err := compile(strings.TrimSpace(line), true)
		if err != nil {
			t.Error(err)
			continue
		}
		in := Input{Text: []byte(strings.Repeat("Bär ", 60)), Tokens: make([]int32, 60)}
		if keeps, err := f.eval(&in, good); err != nil || !keeps {
			t.Errorf("%s: %v, %v", line, keeps, err)
		}
	}
}

// TestManualSays: what the reference says of texts, null and types.
func TestManualSays(t *testing.T) {
	r := record{"bytes": {Kind: format.Bytes, Bytes: []byte("Bär")}, "flag": {Kind: format.Bool, Int: 1}, "n": int_(7)}
	for expr, want := range map[string]bool{
		"len('Bär') == 4 and runes('Bär') == 3":                          true,
		"bytes == 'Bär' and len(bytes) == 4 and 'ä' in bytes":            true,
		"lang != 'en' and lang == null and null in ['a', null]":          true,
		"len(lang) == null and lower(lang) == null and lang + 1 == null": true,
		"score > 0.5":                        false,
		"not (score > 0.5)":                  true,
		"score":                              false,
		"startswith(lang, '')":               false,
		"lang in ['en']":                     false,
		"flag and n / 2 == 3.5 and n == 7.0": true,
		"-7 % 4 == -3 and 2 + 3 * 2 == 8":    true,
		"true or false and false":            true,
		"matches('abc', r'^b')":              false,
	} {
		f, err := compile(expr, false)
		if err != nil {
			t.Error(err)
			continue
		}
		if got, err := f.eval(&Input{}, r); err != nil || got != want {
			t.Errorf("%s: %v, %v", expr, got, err)
		}
	}
	for _, expr := range []string{"n == 'seven' or lang == 'x'", "n / 0 > 1", "9223372036854775807 + n > 0"} {
		f, err := compile(expr, false)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := f.eval(&Input{}, r); err == nil {
			t.Errorf("%s is no error of a record", expr)
		}
	}
}
