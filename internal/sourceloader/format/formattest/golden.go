package formattest

import (
	"encoding/json"
	"fmt"
	"math"
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

// Near reports whether two floats are equal as far as a text of them says.
func Near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(math.Abs(a), math.Abs(b), 1e-9) }
