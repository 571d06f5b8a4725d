package jinja

import (
	"strings"
	"unicode"
)

// tests are those of Jinja2.
var tests = map[string]test{
	"boolean":   func(_ *state, v Value, _ given) bool { _, is := v.(bool); return is },
	"callable":  func(_ *state, v Value, _ given) bool { _, is := v.(function); return is },
	"defined":   func(_ *state, v Value, _ given) bool { _, is := v.(Undefined); return !is },
	"undefined": func(_ *state, v Value, _ given) bool { _, is := v.(Undefined); return is },
	"divisibleby": func(_ *state, v Value, g given) bool {
		return equal(arithmetic("%", v, g.value(0, "num", nil)), int64(0))
	},
	"even":     func(_ *state, v Value, _ given) bool { return equal(arithmetic("%", v, int64(2)), int64(0)) },
	"odd":      func(_ *state, v Value, _ given) bool { return equal(arithmetic("%", v, int64(2)), int64(1)) },
	"false":    func(_ *state, v Value, _ given) bool { return v == false },
	"true":     func(_ *state, v Value, _ given) bool { return v == true },
	"float":    func(_ *state, v Value, _ given) bool { _, is := v.(float64); return is },
	"integer":  func(_ *state, v Value, _ given) bool { _, is := v.(int64); return is },
	"number":   func(_ *state, v Value, _ given) bool { _, _, is := number(v); return is },
	"iterable": isIterable, "sequence": isSequence,
	"mapping": func(_ *state, v Value, _ given) bool { _, is := v.(*Dict); return is },
	"none":    func(_ *state, v Value, _ given) bool { return v == nil },
	"string":  func(_ *state, v Value, _ given) bool { _, is := v.(string); return is },
	"lower": func(_ *state, v Value, _ given) bool {
		return text(v) == lower(text(v)) && strings.ContainsFunc(text(v), unicode.IsLower)
	},
	"upper": func(_ *state, v Value, _ given) bool {
		return text(v) == upper(text(v)) && strings.ContainsFunc(text(v), unicode.IsUpper)
	},
	"sameas": sameAs,
	"in":     func(_ *state, v Value, g given) bool { return contains(g.value(0, "seq", nil), v) },
	"filter": func(s *state, v Value, _ given) bool { return s.filters[text(v)] != nil },
	"test":   func(s *state, v Value, _ given) bool { return s.tests[text(v)] != nil },
	"==":     comparing("=="), "eq": comparing("=="), "equalto": comparing("=="), "!=": comparing("!="), "ne": comparing("!="),
	"<": comparing("<"), "lt": comparing("<"), "lessthan": comparing("<"), "<=": comparing("<="), "le": comparing("<="),
	">": comparing(">"), "gt": comparing(">"), "greaterthan": comparing(">"), ">=": comparing(">="), "ge": comparing(">="),
}

func comparing(op string) test {
	return func(_ *state, v Value, g given) bool { return compared(op, v, g.value(0, "other", nil)) }
}

func isIterable(_ *state, v Value, _ given) bool {
	switch v.(type) {
	case string, *List, *Dict, Undefined:
		return true
	}
	return false
}

// isSequence asks for a length and items by key, which a dict has, too.
func isSequence(_ *state, v Value, _ given) bool {
	switch v.(type) {
	case string, *List, *Dict, Undefined:
		return true
	}
	return false
}

func sameAs(_ *state, v Value, g given) bool {
	other := g.value(0, "other", nil)
	switch v.(type) {
	case nil, bool:
		return v == other
	}
	panic(failf("sameas compares true, false and none only"))
}
