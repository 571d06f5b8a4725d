package jobspec

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
)

// checkSchema validates a spec against JSONSchema with the few keywords that it
// uses; a keyword it does not know fails the test.
func checkSchema(t *testing.T, src []byte) []string {
	t.Helper()
	var schema any
	if err := json.Unmarshal(JSONSchema(), &schema); err != nil {
		t.Fatal(err)
	}
	var value any
	if err := yaml.Unmarshal(src, &value); err != nil {
		t.Fatal(err)
	}
	v := validator{t}
	return v.check(schema.(map[string]any), value)
}

type validator struct{ t *testing.T }

// check returns what is wrong with value, nil if it fits.
func (v validator) check(schema map[string]any, value any) []string {
	var faults []string
	for _, keyword := range slices.Sorted(maps.Keys(schema)) {
		faults = append(faults, v.keyword(keyword, schema, value)...)
	}
	return faults
}

func (v validator) keyword(keyword string, schema map[string]any, value any) []string {
	text, isText := value.(string)
	number, isNumber := asNumber(value)
	group, isGroup := value.(map[string]any)
	list, isList := value.([]any)
	arg := schema[keyword]
	ok := true
	switch keyword {
	case "$schema", "title", "description", "default", "patternProperties":
	case "type":
		ok = map[string]bool{"string": isText, "number": isNumber, "integer": isNumber && number == float64(int64(number)) || isNumber && number > 1e18, "object": isGroup, "array": isList, "boolean": value == true || value == false}[arg.(string)]
		if !ok {
			return []string{fmt.Sprintf("%s is no %s", show(value), arg)}
		}
	case "enum":
		ok = slices.Contains(arg.([]any), value)
	case "pattern":
		ok = !isText || regexp.MustCompile(arg.(string)).MatchString(text)
	case "minLength":
		ok = !isText || utf8.RuneCountInString(text) >= int(arg.(float64))
	case "minimum":
		ok = !isNumber || number >= arg.(float64)
	case "maximum":
		ok = !isNumber || number <= arg.(float64)
	case "minItems":
		ok = !isList || len(list) >= int(arg.(float64))
	case "minProperties":
		ok = !isGroup || len(group) >= int(arg.(float64))
	case "maxProperties":
		ok = !isGroup || len(group) <= int(arg.(float64))
	case "anyOf":
		return v.anyOf(arg.([]any), value)
	case "additionalProperties":
		if arg != false { // false is seen to with the properties
			return v.values(arg.(map[string]any), group)
		}
	case "items":
		return v.items(arg.(map[string]any), list)
	case "required":
		return missingKeys(arg.([]any), group)
	case "properties":
		return v.properties(schema, group)
	default:
		v.t.Fatalf("the schema uses %s, which this test does not know", keyword)
	}
	if !ok {
		return []string{fmt.Sprintf("%s breaks %s %v", show(value), keyword, arg)}
	}
	return nil
}

func (v validator) anyOf(options []any, value any) []string {
	var last []string
	for _, option := range options {
		faults := v.check(option.(map[string]any), value)
		if faults == nil {
			return nil
		}
		last = faults
	}
	if _, isGroup := value.(map[string]any); isGroup {
		return last // the full form is the last option
	}
	return []string{fmt.Sprintf("%s fits none of %d", show(value), len(options))}
}

func (v validator) items(schema map[string]any, list []any) []string {
	var faults []string
	for i, item := range list {
		faults = append(faults, prefix(fmt.Sprint(i), v.check(schema, item))...)
	}
	return faults
}

func (v validator) values(schema, group map[string]any) []string {
	var faults []string
	for _, key := range slices.Sorted(maps.Keys(group)) {
		faults = append(faults, prefix(key, v.check(schema, group[key]))...)
	}
	return faults
}

func missingKeys(required []any, group map[string]any) []string {
	var faults []string
	for _, key := range required {
		if _, ok := group[key.(string)]; !ok {
			faults = append(faults, fmt.Sprintf("%s is missing", key))
		}
	}
	return faults
}

// properties checks the keys of a group. Unknown ones come last.
func (v validator) properties(schema, group map[string]any) []string {
	var faults, unknown []string
	known := schema["properties"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(group)) {
		s, ok := known[key].(map[string]any)
		switch {
		case ok && group[key] != nil: // an empty value is left to its default
			faults = append(faults, prefix(key, v.check(s, group[key]))...)
		case !ok && !(len(key) > 1 && key[:2] == "x-" && schema["patternProperties"] != nil):
			unknown = append(unknown, "unknown "+key)
		}
	}
	return append(faults, unknown...)
}

func prefix(key string, faults []string) []string {
	for i := range faults {
		faults[i] = key + ": " + faults[i]
	}
	return faults
}

func asNumber(value any) (float64, bool) {
	switch n := value.(type) {
	case int64:
		return float64(n), true
	case uint64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

func show(value any) string {
	if s, ok := value.(string); ok {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprint(value)
}
