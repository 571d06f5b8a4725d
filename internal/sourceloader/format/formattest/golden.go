package formattest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/millrace-data/millrace/internal/fieldpath"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// PickJSON follows a path in a decoded JSON value; nil where it ends early.
func PickJSON(j any, path fieldpath.Path) any {
	if len(path) == 0 || j == nil {
		return j
	}
	if !path[0].Each {
		return PickJSON(j.(map[string]any)[path[0].Key], path[1:])
	}
	list := []any{}
	for _, e := range j.([]any) {
		list = append(list, PickJSON(e, path[1:]))
	}
	return list
}

// Differs compares a value with golden JSON and describes the difference.
func Differs(v format.Value, want any) string {
	ok := false
	switch v.Kind {
	case format.Null:
		ok = want == nil
	case format.String, format.Bytes:
		switch want.(type) {
		case map[string]any, []any: // a map is a list of keys and values, or an object
			return differsObject(v.Bytes, want)
		}
		s, text := want.(string)
		ok = text && s == string(v.Bytes)
		if n, number := want.(json.Number); number { // a decimal
			a, _ := strconv.ParseFloat(string(v.Bytes), 64)
			b, _ := n.Float64()
			ok = Near(a, b)
		}
	case format.Int, format.Bool:
		switch w := want.(type) {
		case json.Number:
			ok = strconv.FormatInt(v.Int, 10) == w.String()
		case bool:
			ok = v.Kind == format.Bool && w == (v.Int == 1)
		}
	case format.Float:
		n, number := want.(json.Number)
		f, _ := n.Float64()
		ok = number && Near(f, v.Float) || want == nil && (math.IsNaN(v.Float) || math.IsInf(v.Float, 0))
	case format.List:
		list, isList := want.([]any)
		if !isList || len(list) != len(v.List) {
			return fmt.Sprintf("%d elements, want %v", len(v.List), want)
		}
		for i := range list {
			if diff := Differs(v.List[i], list[i]); diff != "" {
				return fmt.Sprintf("element %d: %s", i, diff)
			}
		}
		return ""
	}
	if ok {
		return ""
	}
	return fmt.Sprintf("%+v %q, want %v", v, v.Bytes, want)
}

// differsObject compares the JSON text of a group of fields with golden JSON, which has the
// nulls that the text leaves out.
func differsObject(text []byte, want any) string {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var got any
	if err := d.Decode(&got); err != nil {
		return fmt.Sprintf("%s: %v", text, err)
	}
	if !sameJSON(got, want) {
		return fmt.Sprintf("%s, want %v", text, want)
	}
	return ""
}

func sameJSON(got, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		g, is := got.(map[string]any)
		for key, value := range w {
			if part := g[key]; !sameJSON(part, value) {
				return false
			}
		}
		for key := range g {
			if _, has := w[key]; !has {
				return false
			}
		}
		return is
	case []any:
		if g, is := got.(map[string]any); is {
			return sameMap(g, w)
		}
		g, is := got.([]any)
		return is && slices.EqualFunc(g, w, sameJSON)
	case json.Number:
		a, errA := strconv.ParseFloat(fmt.Sprint(got), 64) // a decimal is text
		b, errB := w.Float64()
		return errA == nil && errB == nil && Near(a, b)
	}
	return got == want
}

// sameMap compares an object with the keys and values of a map, of which the last counts.
func sameMap(got map[string]any, want []any) bool {
	entries := map[string]any{}
	for _, e := range want {
		entry := e.(map[string]any)
		entries[fmt.Sprint(entry["key"])] = entry["value"]
	}
	return maps.EqualFunc(got, entries, sameJSON)
}

// Near reports whether two floats are equal as far as a text of them says.
func Near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(math.Abs(a), math.Abs(b), 1e-9) }
