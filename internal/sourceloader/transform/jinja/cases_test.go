package jinja_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/transform/jinja"
)

// rendering is a case that internal/tools/chat/cases.py made with Jinja2.
type rendering struct {
	Template, Title string
	Source          string
	Messages, Tools json.RawMessage
	Text            string
	Generated       [][2]int // in characters
	Error           string
}

// TestTemplates compares renderings with those of Jinja2: the templates that are here, and
// those of `make chat`.
func TestTemplates(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || files == nil {
		t.Fatal("no cases", err)
	}
	if more := os.Getenv("MILLRACE_CHAT_CASES"); more != "" {
		files = append(files, more)
	}
	for _, file := range files {
		exact, all := map[string]int{}, map[string]int{}
		conversation := map[string]*rendering{}
		template := map[string]*jinja.Template{}
		for c := range casesOf(t, file) {
			if c.Source != "" {
				if template[c.Template], err = jinja.Parse(c.Source); err != nil && c.Error == "" {
					t.Errorf("%s: %v", c.Template, err)
				}
			}
			all[c.Template]++
			if c.Messages != nil {
				conversation[c.Title] = c
			}
			c.Messages, c.Tools = conversation[c.Title].Messages, conversation[c.Title].Tools
			if template[c.Template] == nil && c.Error != "" || template[c.Template] != nil && sameRendering(t, template[c.Template], c) {
				exact[c.Template]++
			}
		}
		for name, n := range all {
			if n > 1 {
				t.Logf("%s: %d of %d renderings are those of Jinja2", name, exact[name], n)
			}
		}
	}
}

func casesOf(t testing.TB, file string) func(yield func(*rendering) bool) {
	return func(yield func(*rendering) bool) {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			c := new(rendering)
			if err := json.Unmarshal(lines.Bytes(), c); err != nil {
				t.Fatal(err)
			}
			if !yield(c) {
				return
			}
		}
	}
}

// special are the tokens that cases.py gives.
var special = map[string]string{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}

func sameRendering(t *testing.T, template *jinja.Template, c *rendering) bool {
	t.Helper()
	messages, err := jinja.Messages(c.Messages)
	if err != nil {
		t.Error(err)
		return false
	}
	tools, err := jinja.FromJSON(c.Tools)
	if err != nil {
		t.Error(err)
		return false
	}
	vars := map[string]jinja.Value{"messages": messages, "tools": tools, "documents": nil, "add_generation_prompt": false}
	for name, token := range special {
		vars[name] = token
	}
	text, spans, err := template.Render(vars, jinja.Options{Date: &jinja.Date{Year: 2026, Month: 11, Day: 3}})
	switch {
	case (err != nil) != (c.Error != ""):
		t.Errorf("%s, %s: got %v, Jinja2 %s", c.Template, c.Title, err, c.Error)
		return false
	case err != nil:
		return true
	case text != c.Text:
		t.Errorf("%s, %s: %s", c.Template, c.Title, difference(text, c.Text))
		return false
	}
	var generated [][2]int
	for _, s := range spans {
		generated = append(generated, [2]int{len([]rune(text[:s.From])), len([]rune(text[:s.To]))})
	}
	if !slices.Equal(generated, c.Generated) {
		t.Errorf("%s, %s: generated %v, want %v", c.Template, c.Title, generated, c.Generated)
		return false
	}
	return true
}

func difference(got, want string) string {
	n := 0
	for n < min(len(got), len(want)) && got[n] == want[n] {
		n++
	}
	from := max(n-40, 0)
	cut := func(s string) string { return strings.ToValidUTF8(s[from:min(n+60, len(s))], "?") }
	return fmt.Sprintf("at byte %d\ngot  %q\nwant %q", n, cut(got), cut(want))
}

// TestPieces: pieces of templates whose text, or end, is easily another one, with what Jinja2 3.1.6 makes of them.
func TestPieces(t *testing.T) {
	for source, want := range map[string]string{
		"{{ dict(role='user', content='x', a=1) | tojson }}":                                                              `{"role": "user", "content": "x", "a": 1}`,
		"{{ dict({'z': 1, 'b': 2}, y=1, b=3) | tojson }}":                                                                 `{"z": 1, "b": 3, "y": 1}`,
		"{{ 'abc'[1::9223372036854775807] }}|{{ 'abc'[::-9223372036854775807] }}":                                         "b|c",
		"{{ ''[::9223372036854775807] }}|{{ 'abcd'[::4] }}|{{ 'abcd'[1::-5] }}":                                           "|a|b",
		"{{ range(5, 9223372036854775807, 9223372036854775807) | list }}":                                                 "[5]",
		"{{ range(-5, -9223372036854775807, -9223372036854775807) | list }}":                                              "[-5]",
		"{{ range(9223372036854775805, 9223372036854775807) | list }}":                                                    "[9223372036854775805, 9223372036854775806]",
		"{% for i in [1, 2] %}{% continue %}{% else %}none{% endfor %}":                                                   "none",
		"{% for i in [1, 2] %}{{ i }}{% break %}{% else %}none{% endfor %}":                                               "1none",
		"{% for i in [1, 2] %}{{ i }}{% if i == 2 %}{% continue %}{% endif %}{% else %}none{% endfor %}":                  "12",
		"{% for i in [1, 2] %}{% for j in [1] %}{% continue %}{% else %}n{% endfor %}{{ i }}{% else %}none{% endfor %}":   "n1n2",
		"{% for i in [1, 2] %}{% for j in [] %}{% else %}x{% continue %}{% endfor %}{{ i }}{% else %}none{% endfor %}":    "xxnone",
		"{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(b=1, a=2) }}{{ [3, 1] | sort(reverse=true) | join(d='-') }}": "213-1",
	} {
		template, err := jinja.Parse(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, _, err := template.Render(nil, jinja.Options{}); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", source, got, err, want)
		}
	}
}
