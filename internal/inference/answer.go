package inference

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fieldpath"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

// field is a column that an answer gives.
type field struct {
	name string
	kind format.Kind
	path fieldpath.Path
}

// kinds are the types that a spec may name.
var kinds = map[string]format.Kind{"text": format.String, "int": format.Int, "float": format.Float, "bool": format.Bool}

// parseFields reads what the answers to requests for at most rows records give.
func parseFields(give []jobspec.CallColumn, rows int) (fields []field, err error) {
	for i, g := range give {
		f := field{name: g.Column, kind: kinds[g.Type]}
		if f.kind == format.Null {
			return nil, fault.Userf("give[%d].type: %q is none of text, int, float and bool", i, g.Type)
		}
		if f.path, err = fieldpath.Parse(g.At); err != nil {
			return nil, fault.Userf("give[%d].at: %w", i, err)
		}
		lists := 0
		for _, step := range f.path {
			if step.Each {
				lists++
			}
		}
		if lists > 1 || rows > 1 && lists == 0 {
			return nil, fault.Userf("give[%d].at: %q has %d of [], and the list with an element for each record has to be the only one: data[].score", i, g.At, lists)
		}
		fields = append(fields, f)
	}
	if len(fields) == 0 {
		return nil, fault.Userf("give: an answer has to give a column")
	}
	return fields, nil
}

// outcome is the answer to a record, as the ledger has it.
type outcome struct {
	Values []json.RawMessage `json:"values,omitempty"` // one for each column
	Bad    string            `json:"bad,omitempty"`    // why the record is a bad one, if it is
}

// read takes an answer to n records apart. Its error is about all of them. What it shows of the answer passes hide.
func read(fields []field, data []byte, n int, hide func(string) string) ([]outcome, error) {
	if !utf8.Valid(data) {
		return nil, fault.Userf("byte %d of the answer is not valid UTF-8, which JSON is in: have the server answer in UTF-8; the answer begins with %q", format.InvalidUTF8(data), beginning(hide(string(data))))
	}
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var answer any
	if err := d.Decode(&answer); err != nil {
		return nil, fault.Userf("the answer is not JSON: %v; it begins with %q", err, beginning(hide(string(data))))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fault.Userf(`there is more behind the answer's JSON; if the server streams, set "stream": false in the request; the answer begins with %q`, beginning(hide(string(data))))
	}
	all := make([]outcome, n)
	for _, f := range fields {
		values, err := f.values(answer, n)
		if err != nil {
			return nil, fault.Userf("%s; the answer begins with %q", hide(err.Error()), beginning(hide(string(data))))
		}
		for i := range all {
			raw, err := encode(values[i])
			if err != nil {
				return nil, err
			}
			var v format.Value
			if !f.value(raw, &v) {
				all[i] = outcome{Bad: f.wrong(hide(string(raw)))}
			} else if all[i].Bad == "" {
				all[i].Values = append(all[i].Values, raw)
			}
		}
	}
	return all, nil
}

// byteOrderMark may stand before an answer's JSON, as at the start of a JSONL file.
const byteOrderMark = "\ufeff"

// cut reports whether an answer ends in the middle of its JSON, or before it.
func cut(data []byte) bool {
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	err := json.NewDecoder(bytes.NewReader(data)).Decode(new(json.RawMessage))
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// beginning is what of an answer is shown.
func beginning(said string) string {
	const most = 200
	return strings.ToValidUTF8(said[:min(len(said), most)], "?")
}

// values are those of n records.
func (f *field) values(v any, n int) ([]any, error) {
	for i, step := range f.path {
		if step.Each {
			list, ok := v.([]any)
			if !ok || len(list) != n {
				return nil, fmt.Errorf("the answer has at %s %s, and %d records were sent", f.path[:i], describe(v), n)
			}
			out := make([]any, n)
			for k := range list {
				out[k] = follow(list[k], f.path[i+1:])
			}
			return out, nil
		}
		object, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("the answer has no field %s", f.path[:i+1])
		}
		if v, ok = object[step.Key]; !ok {
			return nil, fmt.Errorf("the answer has no field %s", f.path[:i+1])
		}
	}
	return []any{v}, nil
}

// follow is what is at a path of keys, nil if there is nothing.
func follow(v any, path fieldpath.Path) any {
	for _, step := range path {
		object, _ := v.(map[string]any)
		v = object[step.Key]
	}
	return v
}

func describe(v any) string {
	switch v := v.(type) {
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	case map[string]any:
		return "an object"
	case string:
		return "a text"
	case nil:
		return "null"
	}
	return fmt.Sprint(v)
}

// value reads a value of the field, and reports whether it is one.
func (f *field) value(raw []byte, v *format.Value) bool {
	text := string(raw)
	*v = format.Value{Kind: f.kind}
	var err error
	switch f.kind {
	case format.String:
		var s *string
		if err = json.Unmarshal(raw, &s); err == nil && s != nil {
			v.Bytes = []byte(*s)
			return true
		}
	case format.Int:
		if v.Int, err = strconv.ParseInt(text, 10, 64); err == nil {
			return true
		}
	case format.Float:
		if v.Float, err = strconv.ParseFloat(text, 64); err == nil {
			return true
		}
	case format.Bool:
		if text == "true" || text == "false" {
			v.Int = int64(len("false") - len(text))
			return true
		}
	}
	return false
}

// wrong is what is wrong with what is no value of the field.
func (f *field) wrong(text string) string {
	if len(text) > mostShown {
		text = strings.ToValidUTF8(text[:mostShown], "") + "..."
	}
	return fmt.Sprintf("the answer has %s for column %q at %s, which is to be %s", text, f.name, f.path, nouns[f.kind])
}

var nouns = map[format.Kind]string{format.String: "a text", format.Int: "an integer", format.Float: "a number", format.Bool: "true or false"}

// mostShown is how much of a value is shown, in bytes.
const mostShown = 60
