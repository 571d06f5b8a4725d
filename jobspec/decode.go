package jobspec

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// decoder fills Go structs from nodes as the declarations say.
type decoder struct {
	*report
	env   func(string) (string, bool) // nil: there are no variables
	extra map[string]any              // values of fields without a Go field, by field name
}

// object decodes n, nil for nothing written, into the struct v.
func (d *decoder) object(n *node, o *object, v reflect.Value, path string) {
	switch {
	case n == nil || n.kind == nullNode:
		n = &node{kind: mapNode}
	case n.kind == scalarNode && o.short != "":
		n = &node{kind: mapNode, at: n.at, entries: []entry{{o.short, n.at, n}}}
	case n.kind != mapNode:
		d.error(path, n.describe()+" where a group of fields is needed", "valid fields are "+strings.Join(o.keys(), ", "))
		return
	}
	d.unknown(n, o, path)
	if o.choice && !d.single(n, o, path) {
		return
	}
	for i := range o.fields {
		f := &o.fields[i]
		value, at := n.get(f.key)
		child := childField(path, f.key)
		switch {
		case value != nil && value.kind == brokenNode:
			d.taint(child)
		case value != nil && (value.kind != nullNode || o.choice):
			d.places[child] = at
			target := d.target(v, f)
			d.value(value, f, target, child)
			if f.step != nil {
				v.Set(target)
			}
		case f.required:
			d.error(child, "is missing", "valid is "+f.wanted())
		case !o.choice:
			d.fill(f, d.target(v, f), child)
		}
	}
}

func (n *node) get(key string) (*node, position) {
	for _, e := range n.entries {
		if e.key == key {
			return e.value, e.at
		}
	}
	return nil, position{}
}

// unknown reports the keys that the object does not have, which casts no doubt
// on those that it has. At the top, keys that begin with x- are left to the
// user: a place to put anchors.
func (d *decoder) unknown(n *node, o *object, path string) {
	for _, e := range n.entries {
		if o.field(e.key) != nil || path == "" && strings.HasPrefix(e.key, "x-") {
			continue
		}
		child := childField(path, e.key)
		d.add(e.at, child, "unknown field", oneOf(e.key, o.keys()), false)
	}
}

// single checks that a choice has exactly one of its fields.
func (d *decoder) single(n *node, o *object, path string) bool {
	var set []string
	for _, e := range n.entries {
		if o.field(e.key) != nil {
			set = append(set, e.key)
		}
	}
	switch {
	case len(set) == 1:
		return true
	case len(set) > 1:
		d.error(path, "has "+strings.Join(set, " and ")+" in one step", "write each as a list item of its own")
	case len(n.entries) == 0:
		d.error(path, "is empty", "valid is one of "+strings.Join(o.keys(), ", "))
	default: // what there is has its finding
		d.taint(path)
	}
	return false
}

// target returns the Go field that f fills, or a place to put the value aside.
func (d *decoder) target(v reflect.Value, f *field) reflect.Value {
	if f.step != nil {
		return reflect.New(f.step).Elem()
	}
	if f.name != "" {
		return v.FieldByName(f.name)
	}
	if f.kind == weightsKind {
		return reflect.New(reflect.TypeFor[map[string]float64]()).Elem()
	}
	return reflect.New(reflect.TypeFor[int64]()).Elem()
}

// fill sets a field that is not written to its default.
func (d *decoder) fill(f *field, v reflect.Value, path string) {
	switch {
	case v.Kind() == reflect.Pointer: // a group that may be left out
	case f.kind == objectKind && !f.list:
		d.object(nil, f.object, v, path)
	case f.list && f.def != nil:
		v.Set(reflect.ValueOf(slices.Clone(f.def.([]string))))
	case f.def != nil:
		v.Set(reflect.ValueOf(f.def).Convert(v.Type()))
	}
}

func (d *decoder) value(n *node, f *field, v reflect.Value, path string) {
	if !f.list {
		d.one(n, f, v, path)
	} else {
		d.list(n, f, v, path)
	}
	if f.name == "" && d.sound(path) {
		d.extra[path] = v.Interface()
	}
}

func (d *decoder) list(n *node, f *field, v reflect.Value, path string) {
	items := n.items
	if f.one && (n.kind == scalarNode || n.kind == mapNode && f.kind == objectKind) {
		items = []*node{n}
	} else if n.kind != listNode {
		d.error(path, n.describe()+" where a list is needed", "valid is "+f.wanted())
		return
	}
	if len(items) == 0 {
		if f.required {
			d.error(path, "is an empty list", "valid is "+f.wanted())
		}
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, item := range items {
		child := itemField(path, i)
		d.places[child] = item.at
		switch item.kind {
		case brokenNode:
			d.taint(child)
		case nullNode:
			d.error(child, "is empty", "valid is "+f.itemWanted())
		default:
			d.one(item, f, v.Index(i), child)
		}
	}
}

// one decodes a value that is no list.
func (d *decoder) one(n *node, f *field, v reflect.Value, path string) {
	switch f.kind {
	case objectKind:
		if v.Kind() == reflect.Pointer {
			v.Set(reflect.New(v.Type().Elem()))
			v = v.Elem()
		}
		d.object(n, f.object, v, path)
		return
	case weightsKind:
		d.weights(n, v, path)
		return
	}
	text, ok := d.text(n, f, path)
	if !ok {
		return
	}
	switch f.kind {
	case textKind:
		d.word(text, f, v, path)
	case flagKind:
		on, ok := parseFlag(text)
		if !ok {
			d.error(path, quote(text)+" is neither true nor false", "valid are true and false")
		}
		v.SetBool(on)
	case countKind, bytesKind:
		d.count(text, f, v, path)
	}
}

// text returns the text of a scalar with its variables expanded.
func (d *decoder) text(n *node, f *field, path string) (string, bool) {
	if n.kind == brokenNode {
		d.taint(path)
		return "", false
	}
	if n.kind != scalarNode {
		if text, ok := n.template(); ok && f.kind == textKind {
			d.error(path, n.describe()+" to YAML, as it begins with {", "quote it: "+strconv.Quote(text))
			return "", false
		}
		d.error(path, n.describe(), "valid is "+f.itemWanted())
		return "", false
	}
	text, err := expand(n.text, d.env)
	switch {
	case errors.Is(err, errVariable):
		d.error(path, err.Error(), "write its value, put the source into the operator's --changes, or write $$ for a plain dollar sign")
		return "", false
	case err != nil:
		d.error(path, err.Error(), "set it, write ${VAR:-default}, or write $$ for a plain dollar sign")
		return "", false
	}
	return text, true
}

func (d *decoder) word(text string, f *field, v reflect.Value, path string) {
	switch {
	case text == "" && !f.empty:
		d.error(path, "is empty", "valid is "+f.itemWanted())
	case text != "" && f.enum != nil && !slices.Contains(f.enum, text):
		d.error(path, "unknown value "+quote(text), oneOf(text, f.enum))
	default:
		v.SetString(text)
	}
}

func (d *decoder) count(text string, f *field, v reflect.Value, path string) {
	n, ok := parseSize(text, f.kind == bytesKind)
	if !ok {
		d.error(path, quote(text)+" is not a whole number", "valid is "+f.itemWanted())
		return
	}
	low, high := f.bounds()
	switch {
	case n.Cmp(low) < 0:
		d.error(path, shorten(n.String())+" is too small", "valid is "+low.String()+" or more")
	case n.Cmp(high) > 0:
		d.error(path, shorten(n.String())+" is too large", "valid is at most "+high.String())
	case v.CanUint():
		v.SetUint(n.Uint64())
	default:
		v.SetInt(n.Int64())
	}
}

func (f *field) bounds() (low, high *big.Int) {
	if f.wide {
		return new(big.Int), new(big.Int).SetUint64(math.MaxUint64)
	}
	return big.NewInt(f.min), big.NewInt(f.max)
}

// maxWeight keeps the sum of any number of weights finite.
const maxWeight = 1e15

func (d *decoder) weights(n *node, v reflect.Value, path string) {
	if n.kind != mapNode {
		d.error(path, n.describe()+" where weights by source name are needed", "valid is such as {code: 0.3, web: 0.7}")
		return
	}
	weights := make(map[string]float64, len(n.entries))
	for _, e := range n.entries {
		child := childField(path, e.key)
		d.places[child] = e.at
		text, ok := d.text(e.value, weightField, child)
		if !ok {
			continue
		}
		w, ok := parseNumber(text)
		switch {
		case !ok:
			d.error(child, quote(text)+" is not a number", "valid is "+weightField.wanted())
		case math.IsNaN(w) || math.IsInf(w, 0):
			d.error(child, strconv.FormatFloat(w, 'g', -1, 64)+" is not a weight", "valid is "+weightField.wanted())
		case w < 0:
			d.error(child, "the weight "+quote(text)+" is negative", "valid is "+weightField.wanted())
		case w > maxWeight:
			d.error(child, "the weight "+quote(text)+" is too large", fmt.Sprintf("valid is at most %g", maxWeight))
		default:
			weights[e.key] = w + 0 // no negative zero
		}
	}
	v.Set(reflect.ValueOf(weights))
}

// weightField words the findings at one weight.
var weightField = &field{kind: weightsKind}

// wanted says what is valid for the whole field.
func (f *field) wanted() string {
	if f.list {
		return "a list, each item " + f.itemWanted()
	}
	return f.itemWanted()
}

// itemWanted says what is valid for the field, or for one item of a list.
func (f *field) itemWanted() string {
	switch {
	case f.enum != nil:
		return "one of " + strings.Join(f.enum, ", ")
	case f.kind == textKind:
		return "a text"
	case f.kind == countKind:
		return "a whole number such as 4096, 100k or 64Ki"
	case f.kind == bytesKind:
		return "a number of bytes such as 64MiB or 64mb"
	case f.kind == flagKind:
		return "true or false"
	case f.kind == weightsKind:
		return "a number from 0 on"
	default:
		return "a group of " + strings.Join(f.object.keys(), ", ")
	}
}
