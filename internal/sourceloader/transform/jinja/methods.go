package jinja

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// given are the arguments of a filter, a test or a method, which is named for messages.
type given struct {
	name   string
	args   []Value
	kwargs *Dict
}

// value returns an argument by its place or name.
func (g *given) value(i int, name string, otherwise Value) Value {
	if i >= 0 && i < len(g.args) {
		return g.args[i]
	}
	if v, has := g.kwargs.Get(name); has {
		return v
	}
	return otherwise
}

// most refuses more arguments than there are, and unknown names.
func (g *given) most(n int, names ...string) {
	if len(g.args) > n {
		panic(failf("%s takes %d arguments at most, not %d", g.name, n, len(g.args)))
	}
	for _, name := range g.kwargs.Keys() {
		if !slices.Contains(names, name.(string)) {
			panic(failf("%s has no argument %s", g.name, name))
		}
	}
}

// text is a string argument.
func (g *given) text(i int, name string) string {
	v := g.value(i, name, Undefined{})
	s, ok := v.(string)
	if !ok {
		panic(failf("%s wants a str, not a %s", g.name, typeName(v)))
	}
	return s
}

func (g *given) integer(i int, name string, otherwise int64) int64 {
	v := g.value(i, name, otherwise)
	n, ok := integer(v)
	if !ok {
		panic(failf("%s wants a whole number, not a %s", g.name, typeName(v)))
	}
	return n
}

// method binds a method to its value.
func method[T any](name string, of T, f func(T, given) Value) function {
	return func(_ *state, args []Value, kwargs *Dict) Value { return f(of, given{name, args, kwargs}) }
}

var dictMethods = map[string]func(*Dict, given) Value{
	"items": func(d *Dict, g given) Value {
		g.most(0)
		return items(d)
	},
	"keys": func(d *Dict, g given) Value {
		g.most(0)
		return &List{Items: d.keys}
	},
	"values": func(d *Dict, g given) Value {
		g.most(0)
		values := make([]Value, 0, d.Len())
		for _, k := range d.keys {
			values = append(values, d.values[k])
		}
		return &List{Items: values}
	},
	"get": func(d *Dict, g given) Value {
		g.most(2)
		if v, has := d.Get(g.value(0, "", nil)); has {
			return v
		}
		return g.value(1, "", nil)
	},
	"copy": func(d *Dict, g given) Value {
		g.most(0)
		return d
	},
}

func items(d *Dict) *List {
	pairs := make([]Value, 0, d.Len())
	for _, k := range d.keys {
		pairs = append(pairs, &List{Items: []Value{k, d.values[k]}, Tuple: true})
	}
	return &List{Items: pairs}
}

var listMethods = map[string]func(*List, given) Value{
	"index": func(l *List, g given) Value {
		g.most(1)
		i := slices.IndexFunc(l.Items, func(v Value) bool { return equal(v, g.value(0, "", nil)) })
		if i < 0 {
			panic(failf("the list has no such element"))
		}
		return int64(i)
	},
	"count": func(l *List, g given) Value {
		g.most(1)
		n := int64(0)
		for _, v := range l.Items {
			if equal(v, g.value(0, "", nil)) {
				n++
			}
		}
		return n
	},
	"copy": func(l *List, g given) Value { return l },
}

// stripped is str.strip and its kin: the characters to strip are those of the argument.
func stripped(left, right bool) func(string, given) Value {
	return func(s string, g given) Value {
		g.most(1)
		in := isSpace
		if v := g.value(0, "", nil); v != nil {
			set := g.text(0, "")
			in = func(r rune) bool { return strings.ContainsRune(set, r) }
		}
		if left {
			s = strings.TrimLeftFunc(s, in)
		}
		if right {
			s = strings.TrimRightFunc(s, in)
		}
		return s
	}
}

func texts(parts []string) *List {
	l := &List{Items: make([]Value, 0, len(parts))}
	for _, part := range parts {
		l.Items = append(l.Items, part)
	}
	return l
}

// affix is str.startswith and its kin, which take a str or a tuple of them.
func affix(has func(s, part string) bool) func(string, given) Value {
	return func(s string, g given) Value {
		g.most(1)
		if l, is := g.value(0, "", nil).(*List); is && l.Tuple {
			return slices.ContainsFunc(l.Items, func(v Value) bool { return has(s, text(v)) })
		}
		return has(s, g.text(0, ""))
	}
}

func allRunes(is func(rune) bool) func(string, given) Value {
	return func(s string, _ given) Value {
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0
	}
}

func plain(f func(string) string) func(string, given) Value {
	return func(s string, g given) Value {
		g.most(0)
		return f(s)
	}
}

var textMethods = map[string]func(string, given) Value{
	"strip": stripped(true, true), "lstrip": stripped(true, false), "rstrip": stripped(false, true),
	"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix),
	"upper": plain(upper), "lower": plain(lower), "capitalize": plain(capitalized), "title": plain(titled),
	"isdigit": allRunes(unicode.IsDigit), "isalpha": allRunes(unicode.IsLetter), "isspace": allRunes(isSpace),
	"isalnum": allRunes(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
	"split":   splitText, "rsplit": splitTextRight, "splitlines": splitLines, "replace": replaceText,
	"removeprefix": func(s string, g given) Value { return strings.TrimPrefix(s, g.text(0, "")) },
	"removesuffix": func(s string, g given) Value { return strings.TrimSuffix(s, g.text(0, "")) },
	"find":         func(s string, g given) Value { return runesBefore(s, strings.Index(s, g.text(0, ""))) },
	"rfind":        func(s string, g given) Value { return runesBefore(s, strings.LastIndex(s, g.text(0, ""))) },
	"index":        indexText,
	"count":        countText,
	"join": func(s string, g given) Value {
		var parts []string
		for _, v := range elements(g.value(0, "", nil)) {
			part, ok := v.(string)
			if !ok {
				panic(failf("join wants strs, not a %s", typeName(v)))
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, s)
	},
	"partition":  func(s string, g given) Value { return parted(s, g, strings.Index, false) },
	"rpartition": func(s string, g given) Value { return parted(s, g, strings.LastIndex, true) },
}

func parted(s string, g given, find func(s, part string) int, right bool) Value {
	sep := g.text(0, "")
	i := find(s, sep)
	parts := []string{s, "", ""}
	switch {
	case i >= 0:
		parts = []string{s[:i], sep, s[i+len(sep):]}
	case right:
		parts = []string{"", "", s}
	}
	l := texts(parts)
	l.Tuple = true
	return l
}

// runesBefore is a place in characters, -1 for -1.
func runesBefore(s string, i int) Value {
	if i < 0 {
		return int64(-1)
	}
	return int64(len([]rune(s[:i])))
}

func indexText(s string, g given) Value {
	i := strings.Index(s, g.text(0, ""))
	if i < 0 {
		panic(failf("the str has no such part"))
	}
	return runesBefore(s, i)
}

func countText(s string, g given) Value { return int64(strings.Count(s, g.text(0, ""))) }

// upper and lower have the rules for single letters of Unicode that Go's strings lack: ß is SS,
// a sigma at the end of a word another one.
func upper(s string) string { return cases.Upper(language.Und).String(s) }

func lower(s string) string { return cases.Lower(language.Und).String(s) }

// title is the first letter of a word.
func title(s string) string { return cases.Title(language.Und, cases.NoLower).String(s) }

func capitalized(s string) string {
	for i, r := range s {
		if i > 0 {
			return title(s[:i]) + lower(s[i:])
		}
		if len(string(r)) == len(s) {
			return title(s)
		}
	}
	return s
}

// titled is str.title: every run of letters begins with a capital.
func titled(s string) string {
	var b strings.Builder
	inside := false
	for _, r := range s {
		switch {
		case !unicode.IsLetter(r):
			b.WriteRune(r)
		case inside:
			b.WriteRune(unicode.ToLower(r))
		default:
			b.WriteRune(unicode.ToTitle(r))
		}
		inside = unicode.IsLetter(r)
	}
	return b.String()
}

func splitText(s string, g given) Value {
	g.most(2, "sep", "maxsplit")
	most := int(g.integer(1, "maxsplit", -1))
	if g.value(0, "sep", nil) == nil {
		return texts(fields(s, most))
	}
	sep := separator(g)
	if most < 0 {
		return texts(strings.Split(s, sep))
	}
	return texts(strings.SplitN(s, sep, most+1))
}

func separator(g given) string {
	sep := g.text(0, "sep")
	if sep == "" {
		panic(failf("%s by nothing", g.name))
	}
	return sep
}

// fields splits at white space, most times at most.
func fields(s string, most int) (parts []string) {
	s = strings.TrimLeftFunc(s, isSpace)
	for s != "" {
		i := strings.IndexFunc(s, isSpace)
		if i < 0 || most >= 0 && len(parts) == most {
			return append(parts, s)
		}
		parts = append(parts, s[:i])
		s = strings.TrimLeftFunc(s[i:], isSpace)
	}
	return parts
}

func splitTextRight(s string, g given) Value {
	g.most(2, "sep", "maxsplit")
	most := int(g.integer(1, "maxsplit", -1))
	if g.value(0, "sep", nil) == nil {
		if most >= 0 {
			panic(failf("rsplit at white space with a limit is not supported"))
		}
		return texts(fields(s, -1))
	}
	sep := separator(g)
	var parts []string
	for i := strings.LastIndex(s, sep); i >= 0 && (most < 0 || len(parts) < most); i = strings.LastIndex(s, sep) {
		parts = append(parts, s[i+len(sep):])
		s = s[:i]
	}
	parts = append(parts, s)
	slices.Reverse(parts)
	return texts(parts)
}

// lineEnds are what str.splitlines splits at, beside \r\n.
const lineEnds = "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029"

func splitLines(s string, g given) Value {
	g.most(1, "keepends")
	keep := truth(g.value(0, "keepends", false))
	var parts []string
	for s != "" {
		i := strings.IndexAny(s, lineEnds)
		if i < 0 {
			parts = append(parts, s)
			break
		}
		end := i + len(string([]rune(s[i:])[:1]))
		if strings.HasPrefix(s[i:], "\r\n") {
			end = i + 2
		}
		if keep {
			i = end
		}
		parts = append(parts, s[:i])
		s = s[end:]
	}
	return texts(parts)
}

func replaceText(s string, g given) Value {
	g.most(3, "count")
	return strings.Replace(s, g.text(0, ""), g.text(1, ""), int(g.integer(2, "count", -1)))
}
