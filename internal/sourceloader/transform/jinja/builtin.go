package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// filter makes another value of one.
type filter func(s *state, v Value, g given) Value

// test answers a question about a value.
type test func(s *state, v Value, g given) bool

// filters are those of Jinja2 that need no environment; rendering has them in its state, where those
// that call others find them.
var filters = map[string]filter{
	"abs": absolute, "attr": func(_ *state, v Value, g given) Value { return attributeOf(v, g.text(0, "name")) },
	"capitalize": ofText(capitalized), "count": lengthOf, "length": lengthOf,
	"d": byDefault, "default": byDefault, "dictsort": sortedItems,
	"first": firstOf, "last": lastOf, "float": toFloat, "int": toInt, "indent": indented,
	"items": itemsOf, "join": joined, "list": toList, "lower": ofText(lower), "upper": ofText(upper), "title": ofText(titledWords),
	"map": mapped, "max": extreme(1), "min": extreme(-1), "reject": chosenBy(false, false), "rejectattr": chosenBy(false, true), "select": chosenBy(true, false), "selectattr": chosenBy(true, true),
	"replace": replaced, "reverse": reversed, "round": rounded, "safe": toText, "sort": sorted, "string": toText, "sum": summed,
	"tojson": toJSON, "trim": trimmed, "unique": unique, "escape": escaped, "e": escaped,
}

func ofText(f func(string) string) filter {
	return func(_ *state, v Value, g given) Value {
		g.most(0)
		return f(text(v))
	}
}

func toText(_ *state, v Value, _ given) Value { return text(v) }

func lengthOf(_ *state, v Value, _ given) Value { return length(v) }

func absolute(_ *state, v Value, _ given) Value {
	if n, ok := integer(v); ok && n != math.MinInt64 {
		return max(n, -n)
	}
	f, _, ok := number(v)
	if !ok {
		panic(failf("abs of a %s", typeName(v)))
	}
	return math.Abs(f)
}

func byDefault(_ *state, v Value, g given) Value {
	g.most(2, "default_value", "boolean")
	_, undefined := v.(Undefined)
	if undefined || truth(g.value(1, "boolean", false)) && !truth(v) {
		return g.value(0, "default_value", "")
	}
	return v
}

func firstOf(_ *state, v Value, _ given) Value {
	for _, item := range elements(v) {
		return item
	}
	return Undefined{"no first item, the sequence is empty"}
}

func lastOf(_ *state, v Value, _ given) Value {
	if list := elements(v); len(list) > 0 {
		return list[len(list)-1]
	}
	return Undefined{"no last item, the sequence is empty"}
}

func toFloat(_ *state, v Value, g given) Value {
	if f, _, ok := number(v); ok {
		return f
	}
	if s, is := v.(string); is {
		if f, err := strconv.ParseFloat(strings.TrimFunc(s, isSpace), 64); err == nil {
			return f
		}
	}
	return g.value(0, "default", 0.0)
}

func toInt(_ *state, v Value, g given) Value {
	if n, ok := integer(v); ok {
		return n
	}
	s, isText := v.(string)
	if f, is := v.(float64); is && math.Abs(f) < 1<<62 {
		return int64(f)
	}
	if isText {
		s = strings.TrimFunc(s, isSpace)
		if n, err := strconv.ParseInt(s, int(g.integer(1, "base", 10)), 64); err == nil {
			return n
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil && math.Abs(f) < 1<<62 {
			return int64(f)
		}
	}
	return g.value(0, "default", int64(0))
}

func indented(_ *state, v Value, g given) Value {
	g.most(3, "width", "first", "blank")
	by, ok := g.value(0, "width", int64(4)).(string)
	if !ok {
		by = strings.Repeat(" ", int(min(max(g.integer(0, "width", 4), 0), 1000)))
	}
	lines := elements(splitLines(text(v)+"\n", given{name: "indent"}))
	var b strings.Builder
	for i, line := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		if i > 0 && (line != "" || truth(g.value(2, "blank", false))) || i == 0 && truth(g.value(1, "first", false)) {
			b.WriteString(by)
		}
		b.WriteString(line.(string))
	}
	return b.String()
}

func itemsOf(_ *state, v Value, _ given) Value {
	switch x := v.(type) {
	case Undefined:
		return &List{}
	case *Dict:
		return items(x)
	}
	panic(failf("items of a %s", typeName(v)))
}

func joined(_ *state, v Value, g given) Value {
	g.most(2, "d", "attribute")
	get := attributeGetter(g.value(1, "attribute", nil), nil)
	parts := []string{}
	for _, item := range elements(v) {
		parts = append(parts, text(get(item)))
	}
	return strings.Join(parts, text(g.value(0, "d", "")))
}

// attributeGetter returns what a filter's attribute says: name.name or a number.
func attributeGetter(attribute, otherwise Value) func(Value) Value {
	switch x := attribute.(type) {
	case nil:
		return func(v Value) Value { return v }
	case int64:
		return func(v Value) Value { return itemOf(v, x) }
	}
	path := strings.Split(text(attribute), ".")
	return func(v Value) Value {
		for _, name := range path {
			if n, err := strconv.ParseInt(name, 10, 64); err == nil {
				v = itemOf(v, n)
			} else {
				v = keyOrAttribute(v, name)
			}
			if _, undefined := v.(Undefined); undefined && otherwise != nil {
				v = otherwise
			}
		}
		return v
	}
}

// keyOrAttribute is v[name]: for dicts the key before the method.
func keyOrAttribute(v Value, name string) Value { return itemOf(v, name) }

func toList(_ *state, v Value, _ given) Value { return &List{Items: slices.Clone(elements(v))} }

func mapped(s *state, v Value, g given) Value {
	l := &List{}
	if attribute, has := g.kwargs.Get("attribute"); has {
		get := attributeGetter(attribute, g.value(-1, "default", nil))
		for _, item := range elements(v) {
			l.Items = append(l.Items, get(item))
		}
		return l
	}
	name := g.text(0, "")
	f := s.filters[name]
	if f == nil {
		panic(failf("there is no filter %q", name))
	}
	for _, item := range elements(v) {
		s.step()
		l.Items = append(l.Items, f(s, item, given{name, g.args[1:], g.kwargs}))
	}
	return l
}

// chosenBy is select and its kin.
func chosenBy(want, byAttribute bool) filter {
	return func(s *state, v Value, g given) Value {
		get, args := attributeGetter(nil, nil), g.args
		if byAttribute {
			get, args = attributeGetter(g.value(0, "", ""), nil), args[min(1, len(args)):]
		}
		ask := func(_ *state, v Value, _ given) bool { return truth(v) }
		name := "truth"
		if len(args) > 0 {
			name = text(args[0])
			if args = args[1:]; s.tests[name] == nil {
				panic(failf("there is no test %q", name))
			}
			ask = s.tests[name]
		}
		l := &List{}
		for _, item := range elements(v) {
			s.step()
			if ask(s, get(item), given{name, args, g.kwargs}) == want {
				l.Items = append(l.Items, item)
			}
		}
		return l
	}
}

func extreme(sign int) filter {
	return func(_ *state, v Value, g given) Value {
		get := attributeGetter(g.value(1, "attribute", nil), nil)
		list := elements(v)
		if len(list) == 0 {
			return Undefined{"no item, the sequence is empty"}
		}
		best := list[0]
		for _, item := range list[1:] {
			if compare(folded(get(item), false), folded(get(best), false))*sign > 0 {
				best = item
			}
		}
		return best
	}
}

// folded is a text without case, unless case matters.
func folded(v Value, sensitive bool) Value {
	if s, is := v.(string); is && !sensitive {
		return lower(s)
	}
	return v
}

func replaced(_ *state, v Value, g given) Value {
	g.most(3, "old", "new", "count")
	n := int64(-1)
	if c := g.value(2, "count", nil); c != nil {
		n = g.integer(2, "count", -1)
	}
	return strings.Replace(text(v), text(g.value(0, "old", "")), text(g.value(1, "new", "")), int(n))
}

func reversed(_ *state, v Value, _ given) Value {
	list := slices.Clone(elements(v))
	slices.Reverse(list)
	if _, is := v.(string); is {
		var b strings.Builder
		for _, r := range list {
			b.WriteString(r.(string))
		}
		return b.String()
	}
	return &List{Items: list}
}

func rounded(_ *state, v Value, g given) Value {
	f, _, ok := number(v)
	if !ok {
		panic(failf("round of a %s", typeName(v)))
	}
	places := g.integer(0, "precision", 0)
	if n, whole := integer(v); whole && places >= 0 && text(g.value(1, "method", "common")) == "common" {
		return n
	}
	switch method := text(g.value(1, "method", "common")); method {
	case "common":
		shown := strconv.FormatFloat(f, 'f', int(min(max(places, 0), 300)), 64) // half to even, of the exact value
		if places < 0 {
			scale := math.Pow(10, float64(-places))
			return math.RoundToEven(f/scale) * scale
		}
		r, _ := strconv.ParseFloat(shown, 64)
		return r
	case "ceil":
		scale := math.Pow(10, float64(places))
		return math.Ceil(f*scale) / scale
	case "floor":
		scale := math.Pow(10, float64(places))
		return math.Floor(f*scale) / scale
	default:
		panic(failf("round has no method %q", method))
	}
}

func sorted(_ *state, v Value, g given) Value {
	g.most(3, "reverse", "case_sensitive", "attribute")
	get := attributeGetter(g.value(2, "attribute", nil), nil)
	sensitive, reverse := truth(g.value(1, "case_sensitive", false)), truth(g.value(0, "reverse", false))
	list := slices.Clone(elements(v))
	slices.SortStableFunc(list, func(a, b Value) int {
		order := compare(folded(get(a), sensitive), folded(get(b), sensitive))
		if reverse {
			return -order
		}
		return order
	})
	return &List{Items: list}
}

func sortedItems(_ *state, v Value, g given) Value {
	g.most(3, "case_sensitive", "by", "reverse")
	d, ok := v.(*Dict)
	if !ok {
		refuseUndefined(v)
		panic(failf("dictsort of a %s", typeName(v)))
	}
	place := map[string]int{"key": 0, "value": 1}[text(g.value(1, "by", "key"))]
	sensitive, reverse := truth(g.value(0, "case_sensitive", false)), truth(g.value(2, "reverse", false))
	list := items(d)
	slices.SortStableFunc(list.Items, func(a, b Value) int {
		order := compare(folded(a.(*List).Items[place], sensitive), folded(b.(*List).Items[place], sensitive))
		if reverse {
			return -order
		}
		return order
	})
	return list
}

func summed(_ *state, v Value, g given) Value {
	get := attributeGetter(g.value(0, "attribute", nil), nil)
	sum := g.value(1, "start", int64(0))
	for _, item := range elements(v) {
		sum = arithmetic("+", sum, get(item))
	}
	return sum
}

func trimmed(_ *state, v Value, g given) Value {
	g.most(1, "chars")
	if chars := g.value(0, "chars", nil); chars != nil {
		return stripped(true, true)(text(v), given{name: "trim", args: []Value{chars}})
	}
	return strings.TrimFunc(text(v), isSpace)
}

func unique(_ *state, v Value, g given) Value {
	get := attributeGetter(g.value(1, "attribute", nil), nil)
	sensitive := truth(g.value(0, "case_sensitive", false))
	l := &List{}
	var seen []Value
	for _, item := range elements(v) {
		key := folded(get(item), sensitive)
		if !slices.ContainsFunc(seen, func(v Value) bool { return equal(v, key) }) {
			seen, l.Items = append(seen, key), append(l.Items, item)
		}
	}
	return l
}

var escapes = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

func escaped(_ *state, v Value, _ given) Value { return escapes.Replace(text(v)) }

// titledWords is the filter title, which unlike str.title looks at words between spaces,
// hyphens and opening brackets.
func titledWords(s string) string {
	var b strings.Builder
	begins := true
	for _, r := range s {
		switch {
		case isSpace(r) || strings.ContainsRune("-({[<", r):
			begins = true
			b.WriteRune(r)
		case begins:
			b.WriteString(upper(string(r)))
			begins = false
		default:
			b.WriteString(lower(string(r)))
		}
	}
	return b.String()
}
