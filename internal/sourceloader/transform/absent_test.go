package transform

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/json"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// applied puts the one line of a JSON Lines file through a chain.
func applied(t *testing.T, line string, steps ...jobspec.Transform) (text string, err error) {
	t.Helper()
	var files store.Memory
	files.Put("/a.jsonl", []byte(line))
	obj, err := files.Stat(context.Background(), "/a.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	c := mustCompile(t, jobspec.Source{Transforms: steps}, 1000)
	failure := format.Read(context.Background(), json.Lines{}, &files, obj, 0, format.Options{Columns: c.Columns()}, func(rec *format.Record) error {
		_, err := c.Worker().Apply(context.Background(), rec, func(s *Sample) error {
			for _, id := range s.Tokens {
				text += string(rune(id))
			}
			return nil
		})
		return err
	})
	return text, failure
}

// TestAbsent: an absent field is an error that names the fields present; a null is not.
func TestAbsent(t *testing.T) {
	const record = `{"a": "x", "n": null, "meta": {"title": "t", "sub": null}, "m": [{"role": "u", "text": "1"}, {"role": "v"}], "sure?": "s", "a?b": "q", "e": []}`
	for template, want := range map[string]string{
		"{a}|{n}":          "x|",
		"{meta.sub.deep}|": "|",
		"{m[].role}":       "u\nv",
		"{e[].x}|":         "|",
		"{a}{b?}|":         "x|",
		"{meta.titel?}|":   "|",
		"{m[].text?}|":     "1\n|",
		`{sure\?}`:         "s",
		"{a?b}":            "q",
		"{a}{a?}":          "xx",
	} {
		if got, err := applied(t, record, text(template), tokenizeBytes); got != want || err != nil {
			t.Errorf("%s gives %q, %v; want %q", template, got, err, want)
		}
	}
	for template, want := range map[string]string{
		"{b}":          `no field "b"; did you mean "a"? (its fields are a, a?b, e, m, meta, n, sure?)`,
		"{meta.titel}": `no field "titel"; did you mean "title"? (its fields are sub, title)`,
		"{m[].text}":   `no field "text" (its fields are role)`,
		"{sure?}{b}":   `no field "b"`,
		`{sure\\?}{b}`: `no field "b"`,
		"{text}":       `no field "text"`,
		"{a}{b?}{b}":   `no field "b"`,
		"{m[].x} {a?}": `no field "x" (its fields are role, text): correct the name, or write {m[].x?}`,
	} {
		_, err := applied(t, record, text(template), tokenizeBytes)
		if err == nil || !errors.Is(err, ErrAbsent) || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want a user error with %s", template, err, want)
		}
	}
	if _, err := applied(t, record, ids("tokens")); err == nil || !errors.Is(err, ErrAbsent) {
		t.Errorf("a tokens step without its column gives %v", err)
	}
	if got, err := applied(t, record, where("b == null"), text("{a}"), tokenizeBytes); got != "x" || err != nil {
		t.Errorf("to a filter an absent field is null: %q, %v", got, err)
	}
	if got, err := applied(t, record, where("b != null"), text("{b}"), tokenizeBytes); got != "" || err != nil {
		t.Errorf("a filter takes records out before the template needs them: %q, %v", got, err)
	}
}

// TestHintIsBounded: a record of very many or very long names gives a message of one line.
func TestHintIsBounded(t *testing.T) {
	var has []string
	for i := range 1000 {
		has = append(has, strings.Repeat("n", 1+i%997))
	}
	if hint := Hint("x", has); len(hint) > 2000 || !strings.Contains(hint, "and 977 more") {
		t.Errorf("a hint of %d bytes: %.200s", len(hint), hint)
	}
}
