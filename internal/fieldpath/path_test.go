package fieldpath_test

import (
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fieldpath"
)

func TestParse(t *testing.T) {
	key := func(k string) fieldpath.Step { return fieldpath.Step{Key: k} }
	each := fieldpath.Step{Each: true}
	for _, c := range []struct {
		in   string
		want fieldpath.Path
	}{
		{"text", fieldpath.Path{key("text")}},
		{"meta.title", fieldpath.Path{key("meta"), key("title")}},
		{"messages[].content", fieldpath.Path{key("messages"), each, key("content")}},
		{"a[]", fieldpath.Path{key("a"), each}},
		{"a[][].b[]", fieldpath.Path{key("a"), each, each, key("b"), each}},
		{`a\.b.c`, fieldpath.Path{key("a.b"), key("c")}},
		{`a\\b`, fieldpath.Path{key(`a\b`)}},
		{`a\[]`, fieldpath.Path{key("a[]")}},
		{"ключ.名", fieldpath.Path{key("ключ"), key("名")}},
		{"a b]", fieldpath.Path{key("a b]")}},
	} {
		got, err := fieldpath.Parse(c.in)
		if err != nil || len(got) != len(c.want) {
			t.Errorf("Parse(%q) = %q, %v", c.in, got, err)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("Parse(%q) = %+v, want %+v", c.in, got, c.want)
			}
		}
	}
	for _, in := range []string{"", ".", "a.", ".a", "a..b", "[]", "[].a", "a[", "a[0]", "a[]b", "a.[]", `a\`} {
		if got, err := fieldpath.Parse(in); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), in) {
			t.Errorf("Parse(%q) = %q, %v; want a user error that quotes it", in, got, err)
		}
	}
}

// FuzzParse: what parses prints as a path that parses to the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"text", "a.b[].c", `a\.b`, `\[\\`, "a[][]", "\xff."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		path, err := fieldpath.Parse(s)
		if err != nil {
			return
		}
		again, err := fieldpath.Parse(path.String())
		if err != nil || again.String() != path.String() || len(again) != len(path) {
			t.Errorf("%q parses to %+v, which prints as %q and parses to %+v, %v", s, path, path.String(), again, err)
		}
	})
}
