package format_test

import (
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/sourceloader/format"
)

func TestParsePath(t *testing.T) {
	key := func(k string) format.Step { return format.Step{Key: k} }
	each := format.Step{Each: true}
	for _, c := range []struct {
		in   string
		want format.Path
	}{
		{"text", format.Path{key("text")}},
		{"meta.title", format.Path{key("meta"), key("title")}},
		{"messages[].content", format.Path{key("messages"), each, key("content")}},
		{"a[]", format.Path{key("a"), each}},
		{"a[][].b[]", format.Path{key("a"), each, each, key("b"), each}},
		{`a\.b.c`, format.Path{key("a.b"), key("c")}},
		{`a\\b`, format.Path{key(`a\b`)}},
		{`a\[]`, format.Path{key("a[]")}},
		{"ключ.名", format.Path{key("ключ"), key("名")}},
		{"a b]", format.Path{key("a b]")}},
	} {
		got, err := format.ParsePath(c.in)
		if err != nil || len(got) != len(c.want) {
			t.Errorf("ParsePath(%q) = %q, %v", c.in, got, err)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("ParsePath(%q) = %+v, want %+v", c.in, got, c.want)
			}
		}
	}
	for _, in := range []string{"", ".", "a.", ".a", "a..b", "[]", "[].a", "a[", "a[0]", "a[]b", "a.[]", `a\`} {
		if got, err := format.ParsePath(in); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), in) {
			t.Errorf("ParsePath(%q) = %q, %v; want a user error that quotes it", in, got, err)
		}
	}
}

// FuzzParsePath: what parses prints as a path that parses to the same.
func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"text", "a.b[].c", `a\.b`, `\[\\`, "a[][]", "\xff."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		path, err := format.ParsePath(s)
		if err != nil {
			return
		}
		again, err := format.ParsePath(path.String())
		if err != nil || again.String() != path.String() || len(again) != len(path) {
			t.Errorf("%q parses to %+v, which prints as %q and parses to %+v, %v", s, path, path.String(), again, err)
		}
	})
}
