package jinja_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/transform/jinja"
)

// TestLimits: a template that would not end, or would take all memory, is an error.
func TestLimits(t *testing.T) {
	for name, test := range map[string]struct{ template, want string }{
		"a long range":        {"{% for i in range(99999999) %}{% endfor %}", "a range of more than"},
		"loops inside":        {"{% for i in range(9999) %}{% for k in range(9999) %}{% set x = 1 %}{% endfor %}{% endfor %}", "it may have no end"},
		"a macro without end": {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls are more than 200 deep"},
		"a long text":         {"{% for i in range(100000) %}0123456789{% endfor %}", "the text is longer than 5000 bytes"},
		"a text of texts":     {"{{ 'a' * 999999999 }}", "is more than"},
		"doubling":            {"{% set ns = namespace(s='abcdefgh') %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "longer than"},
		"doubling a list":     {"{% set ns = namespace(s=[1]) %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "longer than"},
		"brackets":            {"{{ " + strings.Repeat("(", 9999) + "1" + strings.Repeat(")", 9999) + " }}", "nest more than 200 deep"},
		"blocks":              {strings.Repeat("{% if 1 %}", 9999) + strings.Repeat("{% endif %}", 9999), "nest more than 200 deep"},
		"the clock":           {"{{ strftime_now('%Y') }}", "another day"},
		"a large number":      {"{{ 9223372036854775807 + 1 }}", "beyond 64 bits"},
		"a change":            {"{{ messages.append(1) }}", "append changes a value"},
		"no line":             {"a\nb\n{{ 1 + 'a' }}", "line 3 of the template"},
		"an open loop":        {"\n{% for m in messages %}{{ m }}", "the end of the template where {% endfor %} is expected"},
		"an open condition":   {"{% if 1 %}a{% else %}b", "the end of the template where {% endif %} is expected"},
		"an open block":       {"{% set x %}a", "the end of the template where {% endset %} is expected"},
		"a refusal":           {"\n{{ raise_exception('roles must alternate') }}", "line 2 of the template refuses it: roles must alternate"},
	} {
		template, err := jinja.Parse(test.template)
		if err == nil {
			_, _, err = template.Render(map[string]jinja.Value{"messages": &jinja.List{}}, jinja.Options{MaxOutput: 5000})
		}
		var e *jinja.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestDate(t *testing.T) {
	for text, want := range map[string]string{"2026-11-03": "Tuesday 307", "2024-02-29": "Thursday 060", "2000-12-31": "Sunday 366", "1900-03-01": "Thursday 060"} {
		d, ok := jinja.ParseDate(text)
		if got, err := d.Format("%A %j"); !ok || err != nil || got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "2026-1-1", "2023-02-29", "2026-13-01", "2026-00-01", "2026-01-32", "2026-01-01T00"} {
		if _, ok := jinja.ParseDate(text); ok {
			t.Errorf("%s is a date", text)
		}
	}
}

// FuzzTemplate: whatever a template is, there is a text or an error.
func FuzzTemplate(f *testing.F) {
	for c := range casesOf(f, "testdata/own.jsonl") {
		f.Add(c.Source)
	}
	messages, err := jinja.Messages([]byte(`[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.5}}}]}]`))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, source string) {
		template, err := jinja.Parse(source)
		if err != nil {
			return
		}
		text, spans, err := template.Render(map[string]jinja.Value{"messages": messages, "tools": nil}, jinja.Options{MaxOutput: 1 << 16})
		for _, s := range spans {
			if err == nil && (s.From < 0 || s.From > s.To || s.To > len(text)) {
				t.Errorf("%v in a text of %d bytes", s, len(text))
			}
		}
	})
}
