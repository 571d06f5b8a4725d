package jinja

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// Value is what an expression gives: nil, bool, int64, float64, string, *List, *Dict,
// Undefined, or a thing of the template's own (a namespace, a macro, a function, a loop).
type Value any

// List is a list or, if Tuple is set, a tuple.
type List struct {
	Items []Value
	Tuple bool
}

// Dict is a dictionary that keeps the order of its keys. A nil one is empty.
type Dict struct {
	keys   []Value
	values map[Value]Value
}

// NewDict returns an empty dictionary.
func NewDict() *Dict { return &Dict{values: map[Value]Value{}} }

// Set sets a key; a new one is the last.
func (d *Dict) Set(key, v Value) {
	if _, has := d.values[key]; !has {
		d.keys = append(d.keys, key)
	}
	d.values[key] = v
}

// Get returns the value of a key.
func (d *Dict) Get(key Value) (Value, bool) {
	if d == nil || !hashable(key) {
		return nil, false
	}
	v, has := d.values[key]
	return v, has
}

// Keys returns the keys in order; the caller must not change them.
func (d *Dict) Keys() []Value {
	if d == nil {
		return nil
	}
	return d.keys
}

// Len is the number of keys.
func (d *Dict) Len() int { return len(d.Keys()) }

// Undefined is the value of a name, a key or an attribute that is not there.
type Undefined struct{ what string }

type namespace struct{ *Dict }

// function is something that can be called. Its named arguments are in the order of the call, nil if there are none.
type function func(s *state, args []Value, kwargs *Dict) Value

func hashable(v Value) bool {
	switch v.(type) {
	case nil, bool, int64, float64, string:
		return true
	}
	return false
}

func truth(v Value) bool {
	switch x := v.(type) {
	case nil, Undefined:
		return false
	case bool:
		return x
	case int64:
		return x != 0
	case float64:
		return x != 0
	case string:
		return x != ""
	case *List:
		return len(x.Items) > 0
	case *Dict:
		return x.Len() > 0
	}
	return true
}

// typeName is Python's name of a value's type.
func typeName(v Value) string {
	switch x := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *List:
		if x.Tuple {
			return "tuple"
		}
		return "list"
	case *Dict:
		return "dict"
	case Undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	}
	return "function"
}

// text is Python's str().
func text(v Value) string {
	switch x := v.(type) {
	case string:
		return x
	case Undefined:
		return ""
	}
	return repr(v)
}

// repr is Python's repr().
func repr(v Value) string {
	switch x := v.(type) {
	case nil:
		return "None"
	case bool:
		if x {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(x, 10)
	case float64:
		return floatText(x)
	case string:
		return quoted(x)
	case *List:
		return listText(x)
	case *Dict:
		parts := make([]string, 0, x.Len())
		for _, k := range x.keys {
			parts = append(parts, repr(k)+": "+repr(x.values[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case Undefined:
		return "Undefined"
	}
	panic(failf("a %s is not to be written as text", typeName(v)))
}

func listText(l *List) string {
	parts := make([]string, 0, len(l.Items))
	for _, v := range l.Items {
		parts = append(parts, repr(v))
	}
	switch {
	case !l.Tuple:
		return "[" + strings.Join(parts, ", ") + "]"
	case len(parts) == 1:
		return "(" + parts[0] + ",)"
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

// floatText is the shortest text that reads back as f, as Python writes it.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.ContainsRune(s, '.') {
		s += ".0"
	}
	return s
}

// quoted is Python's repr() of a string.
func quoted(s string) string {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b := []byte{quote}
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case unicode.IsPrint(r):
			b = append(b, string(r)...)
		case r < 0x100:
			b = fmt.Appendf(b, `\x%02x`, r)
		case r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = fmt.Appendf(b, `\U%08x`, r)
		}
	}
	return string(append(b, quote))
}

// number returns a value as a float; bools count.
func number(v Value) (f float64, whole, ok bool) {
	switch x := v.(type) {
	case bool:
		if x {
			return 1, true, true
		}
		return 0, true, true
	case int64:
		return float64(x), true, true
	case float64:
		return x, false, true
	}
	return 0, false, false
}

// integer returns a bool or an int as a number.
func integer(v Value) (int64, bool) {
	switch x := v.(type) {
	case bool:
		if x {
			return 1, true
		}
		return 0, true
	case int64:
		return x, true
	}
	return 0, false
}

func equal(a, b Value) bool {
	if x, ok := integer(a); ok {
		if y, ok := integer(b); ok {
			return x == y
		}
	}
	if x, _, ok := number(a); ok {
		y, _, ok := number(b)
		return ok && x == y
	}
	switch x := a.(type) {
	case nil:
		return b == nil
	case string:
		y, ok := b.(string)
		return ok && x == y
	case Undefined:
		_, ok := b.(Undefined)
		return ok
	case *List:
		y, ok := b.(*List)
		return ok && x.Tuple == y.Tuple && equalItems(x.Items, y.Items)
	case *Dict:
		y, ok := b.(*Dict)
		return ok && equalDicts(x, y)
	case *namespace:
		return a == b
	}
	return false
}

func equalItems(a, b []Value) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func equalDicts(a, b *Dict) bool {
	if a.Len() != b.Len() {
		return false
	}
	for k, v := range a.values {
		if w, has := b.values[k]; !has || !equal(v, w) {
			return false
		}
	}
	return true
}

// compare orders two values; others than Python can order are an error.
func compare(a, b Value) int {
	if x, ok := integer(a); ok {
		if y, ok := integer(b); ok {
			return cmp.Compare(x, y)
		}
	}
	if x, _, ok := number(a); ok {
		if y, _, ok := number(b); ok {
			return cmp.Compare(x, y)
		}
	}
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			return strings.Compare(x, y)
		}
	case *List:
		if y, ok := b.(*List); ok && x.Tuple == y.Tuple {
			for i := range min(len(x.Items), len(y.Items)) {
				if !equal(x.Items[i], y.Items[i]) {
					return compare(x.Items[i], y.Items[i])
				}
			}
			return cmp.Compare(len(x.Items), len(y.Items))
		}
	}
	panic(failf("%s and %s have no order", typeName(a), typeName(b)))
}

// contains is Python's in.
func contains(in, v Value) bool {
	switch x := in.(type) {
	case string:
		part, ok := v.(string)
		if !ok {
			panic(failf("in a str only a str can be, not a %s", typeName(v)))
		}
		return strings.Contains(x, part)
	case *Dict:
		_, has := x.Get(v)
		return has
	}
	for _, item := range elements(in) {
		if equal(item, v) {
			return true
		}
	}
	return false
}

// elements are what a loop over a value goes through.
func elements(v Value) []Value {
	switch x := v.(type) {
	case *List:
		return x.Items
	case *Dict:
		return x.keys
	case string:
		items := make([]Value, 0, len(x))
		for _, r := range x {
			items = append(items, string(r))
		}
		return items
	case Undefined:
		return nil
	}
	panic(failf("a %s cannot be gone through", typeName(v)))
}

// length is Python's len().
func length(v Value) int64 {
	switch x := v.(type) {
	case string:
		return int64(len([]rune(x)))
	case *Dict:
		return int64(x.Len())
	}
	return int64(len(elements(v)))
}
