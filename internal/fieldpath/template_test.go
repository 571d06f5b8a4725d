package fieldpath_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fieldpath"
)

func Example() {
	parts, err := fieldpath.ParseTemplate(`{title}: {messages[].content}`)
	for _, p := range parts {
		path, _ := fieldpath.Parse(p.Path)
		fmt.Printf("%q then %+v\n", p.Literal, path)
	}
	fmt.Println(err)
	// Output:
	// "" then title
	// ": " then messages[].content
	// <nil>
}

func TestParseTemplate(t *testing.T) {
	type parts = []fieldpath.Part
	for src, want := range map[string]parts{
		"{a}":                 {{"", "a", false}},
		"x{a}y{b.c}z":         {{"x", "a", false}, {"y", "b.c", false}, {"z", "", false}},
		"{{{a}}}":             {{"{", "a", false}, {"}", "", false}},
		"{test[][].key}":      {{"", "test[][].key", false}},
		`{ts\[ms\]}`:          {{"", `ts\[ms\]`, false}},
		`{a\}b} {a\{b} {a\\}`: {{"", `a\}b`, false}, {" ", `a\{b`, false}, {" ", `a\\`, false}},
		`{a?}{b\\?}{c\?}`:     {{"", "a", true}, {"", `b\\`, true}, {"", `c\?`, false}},
		"{ключ}\n":            {{"", "ключ", false}, {"\n", "", false}},
	} {
		if got, err := fieldpath.ParseTemplate(src); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("ParseTemplate(%q) = %+v, %v; want %+v", src, got, err, want)
		}
	}
	for src, want := range map[string]string{
		"":         "write {text} for a field",
		"body":     "write {body} for a field",
		"{{a}}":    "names no field",
		"{a":       "byte 0: { is not closed",
		`x{a\}`:    "byte 1: { is not closed",
		`{a\`:      "byte 0: { is not closed",
		"{a {b}}":  "byte 0: { is not closed",
		"a}":       "byte 1: } without {",
		"{}":       "{} names no field",
		"{ a}":     "{ a} names no field",
		"xy{a..b}": `byte 2: field path "a..b"`,
		"{ts[ms]}": `write \[ for a bracket in a name`,
	} {
		if got, err := fieldpath.ParseTemplate(src); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseTemplate(%q) = %+v, %v; want a user error with %q", src, got, err, want)
		}
	}
}

// FuzzParseTemplate: what parses has paths that parse, and is made of its parts.
func FuzzParseTemplate(f *testing.F) {
	for _, s := range []string{"{a}", "{{{a}}}", `{a\}b}`, "x{a[][].b}y", "{", "{a\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		parts, err := fieldpath.ParseTemplate(src)
		if err != nil {
			return
		}
		var again strings.Builder
		doubled := strings.NewReplacer("{", "{{", "}", "}}")
		for _, p := range parts {
			again.WriteString(doubled.Replace(p.Literal))
			if p.Path == "" {
				continue
			}
			if _, err := fieldpath.Parse(p.Path); err != nil {
				t.Errorf("%q has the path %q: %v", src, p.Path, err)
			}
			again.WriteString("{" + p.Path)
			if p.Optional {
				again.WriteString("?")
			}
			again.WriteString("}")
		}
		if again.String() != src {
			t.Errorf("%q is made of %q", src, again.String())
		}
	})
}
