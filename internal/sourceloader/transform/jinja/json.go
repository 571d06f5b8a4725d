package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// toJSON is the filter of Transformers: json.dumps without HTML escapes.
func toJSON(_ *state, v Value, g given) Value {
	g.most(4, "ensure_ascii", "indent", "separators", "sort_keys")
	w := jsonWriter{item: ", ", key: ": ", ascii: truth(g.value(0, "ensure_ascii", false)), sort: truth(g.value(3, "sort_keys", false))}
	switch indent := g.value(1, "indent", nil).(type) {
	case nil:
	case string:
		w.indent, w.lines, w.item = indent, true, ","
	default:
		w.indent, w.lines, w.item = strings.Repeat(" ", int(min(max(g.integer(1, "indent", 0), 0), 1000))), true, ","
	}
	if l, is := g.value(2, "separators", nil).(*List); is && len(l.Items) == 2 {
		w.item, w.key = text(l.Items[0]), text(l.Items[1])
	}
	w.value(v, 0)
	return string(w.out)
}

// jsonWriter writes JSON as Python's json.dumps.
type jsonWriter struct {
	out         []byte
	item, key   string // separators
	indent      string
	lines       bool // every item on a line of its own
	ascii, sort bool
}

func (w *jsonWriter) value(v Value, depth int) {
	if depth > maxDepth {
		panic(failf("a value nests more than %d deep", maxDepth))
	}
	switch x := v.(type) {
	case nil:
		w.out = append(w.out, "null"...)
	case bool:
		w.out = strconv.AppendBool(w.out, x)
	case int64:
		w.out = strconv.AppendInt(w.out, x, 10)
	case float64:
		w.float(x)
	case string:
		w.str(x)
	case *List:
		w.group('[', ']', len(x.Items), depth, func(i int) { w.value(x.Items[i], depth+1) })
	case *Dict:
		keys := x.keys
		if w.sort {
			keys = slices.SortedFunc(slices.Values(keys), compare)
		}
		w.group('{', '}', len(keys), depth, func(i int) {
			w.str(jsonKey(keys[i]))
			w.out = append(w.out, w.key...)
			w.value(x.values[keys[i]], depth+1)
		})
	default:
		refuseUndefined(v)
		panic(failf("a %s is no JSON", typeName(v)))
	}
}

func (w *jsonWriter) float(f float64) {
	switch {
	case math.IsNaN(f):
		w.out = append(w.out, "NaN"...)
	case math.IsInf(f, 0):
		w.out = append(w.out, strings.Replace(floatText(f), "inf", "Infinity", 1)...)
	default:
		w.out = append(w.out, floatText(f)...)
	}
}

func jsonKey(k Value) string {
	switch k.(type) {
	case nil:
		return "null"
	case bool:
		return lower(repr(k))
	}
	return text(k)
}

func (w *jsonWriter) group(open, shut byte, n, depth int, item func(i int)) {
	w.out = append(w.out, open)
	for i := range n {
		if i > 0 {
			w.out = append(w.out, w.item...)
		}
		w.newLine(depth + 1)
		item(i)
	}
	if n > 0 {
		w.newLine(depth)
	}
	w.out = append(w.out, shut)
}

func (w *jsonWriter) newLine(depth int) {
	if w.lines {
		w.out = append(w.out, '\n')
		w.out = append(w.out, strings.Repeat(w.indent, depth)...)
	}
}

func (w *jsonWriter) str(s string) {
	w.out = append(w.out, '"')
	for _, r := range s {
		switch k := strings.IndexRune("\"\\\n\r\t\f\b", r); {
		case k >= 0:
			w.out = append(w.out, '\\', `"\nrtfb`[k])
		case r < ' ' || w.ascii && r > '~':
			if r > 0xffff {
				r -= 0x10000
				w.out = fmt.Appendf(w.out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
			} else {
				w.out = fmt.Appendf(w.out, `\u%04x`, r)
			}
		default:
			w.out = utf8.AppendRune(w.out, r)
		}
	}
	w.out = append(w.out, '"')
}

// FromJSON reads a JSON value as Python's json.loads does: keys keep their order, of equal
// ones the last counts. A whole number beyond 64 bits is an error.
func FromJSON(data []byte) (Value, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := readJSON(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON value")
	}
	return v, nil
}

func readJSON(d *json.Decoder) (Value, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch x := t.(type) {
	case json.Number:
		return numberOf(x)
	case json.Delim:
		if x == '{' {
			return readObject(d)
		}
		l := &List{}
		for d.More() {
			v, err := readJSON(d)
			if err != nil {
				return nil, err
			}
			l.Items = append(l.Items, v)
		}
		_, err := d.Token()
		return l, err
	}
	return t, nil // nil, bool, string
}

func numberOf(n json.Number) (Value, error) {
	if strings.ContainsAny(string(n), ".eE") {
		return strconv.ParseFloat(string(n), 64)
	}
	i, err := strconv.ParseInt(string(n), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("the number %.40s is beyond 64 bits", n)
	}
	return i, nil
}

func readObject(d *json.Decoder) (Value, error) {
	o := NewDict()
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := readJSON(d)
		if err != nil {
			return nil, err
		}
		o.Set(key, v)
	}
	_, err := d.Token()
	return o, err
}

// thoughts are the names under which a message has its reasoning, the one that templates
// read first.
var thoughts = []string{"reasoning_content", "thinking", "reasoning"}

// Messages reads a conversation, a JSON list of objects, as Transformers gives it to templates:
// a null of a message is left out, and its reasoning has the names that templates read.
func Messages(data []byte) (*List, error) {
	v, err := FromJSON(data)
	if err != nil {
		return nil, err
	}
	list, ok := v.(*List)
	if !ok {
		return nil, fmt.Errorf("a conversation is a list of messages, not a %s", typeName(v))
	}
	made := &List{}
	for i, m := range list.Items {
		message, ok := m.(*Dict)
		if !ok {
			return nil, fmt.Errorf("message %d is a %s; a message is an object with role and content", i, typeName(m))
		}
		made.Items = append(made.Items, Message(message))
	}
	return made, nil
}

// Message is one message of a conversation for templates.
func Message(m *Dict) *Dict {
	var thought Value
	for _, name := range thoughts {
		if v, _ := m.Get(name); v != nil {
			thought = v
			break
		}
	}
	made := NewDict()
	if thought != nil {
		made.Set("thinking", thought)
	}
	for _, k := range m.keys {
		if v := m.values[k]; v != nil {
			made.Set(k, v)
		}
	}
	if thought != nil {
		made.Set("reasoning_content", thought)
	}
	return made
}
