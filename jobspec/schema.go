package jobspec

import (
	"encoding/json"
	"fmt"
	"math"
)

// JSONSchema returns the JSON Schema (draft 2020-12) of the spec, for editors.
// It knows fields, types, defaults and words; the rules between fields are
// Parse's alone. Where a value may come from the environment, a text that holds
// ${ is let through.
func JSONSchema() []byte {
	s := objectSchema(&specObject)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Millrace job spec"
	s["patternProperties"] = map[string]any{"^x-": map[string]any{"description": "Ignored: a place for anchors."}}
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("jobspec: the schema is made of maps, texts and numbers only: %v", err))
	}
	return append(out, '\n')
}

func objectSchema(o *object) map[string]any {
	properties := map[string]any{}
	var required []string
	for i := range o.fields {
		f := &o.fields[i]
		properties[f.key] = fieldSchema(f)
		if f.required {
			required = append(required, f.key)
		}
	}
	s := map[string]any{
		"type":                 "object",
		"properties":           properties,
		"additionalProperties": false,
	}
	if required != nil {
		s["required"] = required
	}
	if o.choice {
		s["minProperties"], s["maxProperties"] = 1, 1
	}
	return s
}

func fieldSchema(f *field) map[string]any {
	s := itemSchema(f)
	if f.list {
		list := map[string]any{"type": "array", "items": s}
		if f.required {
			list["minItems"] = 1
		}
		s = list
		if f.one {
			s = map[string]any{"anyOf": []any{list["items"], list}}
		}
	}
	s["description"] = f.doc
	if f.auto != "" {
		s["description"] = f.doc + " Default: " + f.auto + "."
	}
	if d := f.staticDefault(); d != nil {
		s["default"] = d
	}
	return s
}

// staticDefault returns the default of a field that has one that depends on no
// other field, else nil.
func (f *field) staticDefault() any {
	switch {
	case f.required || f.auto != "" || f.name == "" || f.kind == objectKind:
		return nil
	case f.kind == bytesKind:
		return sizeText(f.def.(int64))
	case f.def != nil:
		return f.def
	case f.kind == countKind && f.min == 0:
		return 0
	}
	return nil
}

// itemSchema is the schema of one value of the field, list or not.
func itemSchema(f *field) map[string]any {
	switch f.kind {
	case objectKind:
		return shorthand(f.object)
	case weightsKind:
		number := map[string]any{"anyOf": []any{map[string]any{"type": "number", "minimum": 0}, fromEnvironment()}}
		return map[string]any{"type": "object", "minProperties": 1, "additionalProperties": number}
	case flagKind:
		return map[string]any{"anyOf": []any{map[string]any{"type": "boolean"}, fromEnvironment()}}
	case countKind:
		return map[string]any{"anyOf": []any{integerSchema(f), sizeSchema("[kKmMgGtT]?[iI]?")}}
	case bytesKind:
		return map[string]any{"anyOf": []any{integerSchema(f), sizeSchema("[kKmMgGtT]?[iI]?[bB]?")}}
	}
	if f.enum == nil {
		s := map[string]any{"type": "string"}
		if !f.empty {
			s["minLength"] = 1
		}
		return s
	}
	words := f.enum
	if f.empty {
		words = append([]string{""}, words...)
	}
	return map[string]any{"anyOf": []any{map[string]any{"enum": words}, fromEnvironment()}}
}

// shorthand adds the bare value that an object may be written as.
func shorthand(o *object) map[string]any {
	full := objectSchema(o)
	if o.short == "" {
		return full
	}
	bare := itemSchema(o.field(o.short))
	return map[string]any{"anyOf": []any{bare, full}}
}

func integerSchema(f *field) map[string]any {
	s := map[string]any{"type": "integer", "minimum": f.min, "maximum": f.max}
	if f.wide {
		s["maximum"] = uint64(math.MaxUint64)
	}
	return s
}

func sizeSchema(unit string) map[string]any {
	return map[string]any{"type": "string", "pattern": `^[0-9][0-9_]*(\.[0-9]+)?([eE]\+?[0-9]+)? ?` + unit + `$|\$\{`}
}

func fromEnvironment() map[string]any {
	return map[string]any{"type": "string", "pattern": `\$\{`}
}
