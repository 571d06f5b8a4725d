package inference

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fieldpath"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// request is the form of a request: JSON whose strings may be templates over columns.
type request struct {
	form    any      // map[string]any, []any, repeated, template, and what else json.Decoder gives
	columns []column // in the order in which form names them, its keys rising: that of the values in a record's key
	several bool     // form has a repeated
}

// column is what a request takes of a record.
type column struct {
	path     string
	optional bool // null is a value of it
}

// repeated is a list with one element for each record of a request.
type repeated struct{ element any }

// template is a string that names columns.
type template []part

// part is literal text and then, unless column is below 0, a value.
type part struct {
	literal string
	column  int
}

// parseRequest reads the form of requests for at most rows records.
func parseRequest(text string, rows int) (*request, error) {
	const valid = `valid is JSON such as {"inputs": ["{text}"]}`
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	r, form := &request{}, any(nil)
	if err := d.Decode(&form); err != nil {
		return nil, fault.Userf("it is not JSON: %v; %s", err, valid)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fault.Userf("there is more behind the end of its JSON; %s", valid)
	}
	form, err := r.templates(form)
	if err != nil {
		return nil, err
	}
	if len(r.columns) == 0 {
		return nil, fault.Userf("it names no column, so that each record would get the same answer; %s", valid)
	}
	if r.form = form; rows == 1 {
		return r, nil
	}
	if r.form, r.several = repeat(form); !r.several || templated(r.form) {
		return nil, fault.Userf(`rows is %d, so that one list has to have one element that names all columns and stands for each record: {"inputs": ["{text}"]}; or set rows to 1`, rows)
	}
	return r, nil
}

// templates puts templates in the place of strings.
func (r *request) templates(v any) (_ any, err error) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if v[key], err = r.templates(v[key]); err != nil {
				return nil, err
			}
		}
	case []any:
		for i := range v {
			if v[i], err = r.templates(v[i]); err != nil {
				return nil, err
			}
		}
	case string:
		if strings.ContainsAny(v, "{}") {
			return r.template(v)
		}
	}
	return v, nil
}

func (r *request) template(s string) (template, error) {
	parts, err := fieldpath.ParseTemplate(s)
	var t template
	for _, from := range parts {
		to := part{from.Literal, -1}
		if from.Path != "" {
			to.column = r.column(from.Path, from.Optional)
		}
		t = append(t, to)
	}
	return t, err
}

func (r *request) column(path string, optional bool) int {
	at := slices.IndexFunc(r.columns, func(c column) bool { return c.path == path })
	if at < 0 {
		r.columns = append(r.columns, column{path, optional})
		return len(r.columns) - 1
	}
	r.columns[at].optional = r.columns[at].optional && optional
	return at
}

// repeat makes the outermost list that has one element, with columns in it, a repeated.
func repeat(v any) (_ any, done bool) {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			if templated(v[key]) {
				v[key], done = repeat(v[key])
				return v, done
			}
		}
	case []any:
		if len(v) == 1 && templated(v[0]) {
			return repeated{v[0]}, true
		}
		for i := range v {
			if templated(v[i]) {
				v[i], done = repeat(v[i])
				return v, done
			}
		}
	}
	return v, false
}

// templated says whether there is a template in it, those of a repeated aside.
func templated(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			if templated(v[key]) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, templated)
	case template:
		return true
	}
	return false
}

// values are those of a record's columns as JSON has them. Its error is about the record.
func (r *request) values(of []format.Value) ([]any, error) {
	all := make([]any, len(of))
	for i := range of {
		var err error
		if all[i], err = jsonValue(&of[i]); err != nil {
			return nil, fault.Userf("column %q, which a request takes, %w", r.columns[i].path, err)
		}
	}
	return all, nil
}

// row is what a request says of the record with these values: it decides the answer.
func (r *request) row(values []any) (any, error) {
	if !r.several {
		return fill(r.form, values)
	}
	return fill(element(r.form), values)
}

// element is that of the repeated in a form.
func element(v any) any {
	switch v := v.(type) {
	case repeated:
		return v.element
	case map[string]any:
		for key := range v {
			if e := element(v[key]); e != nil {
				return e
			}
		}
	case []any:
		for i := range v {
			if e := element(v[i]); e != nil {
				return e
			}
		}
	}
	return nil
}

// body is a request for records, by what row gave of each.
func (r *request) body(rows []any) ([]byte, error) {
	if !r.several {
		return encode(rows[0])
	}
	return encode(withRows(r.form, rows))
}

// withRows is the form with the rows in their place.
func withRows(v any, rows []any) any {
	switch v := v.(type) {
	case repeated:
		return rows
	case map[string]any:
		out := make(map[string]any, len(v))
		for key := range v {
			out[key] = withRows(v[key], rows)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = withRows(v[i], rows)
		}
		return out
	}
	return v
}

// encode writes JSON by rising keys, with no character escaped that need not be.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// fill puts values in the place of templates.
func fill(v any, values []any) (_ any, err error) {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key := range v {
			if out[key], err = fill(v[key], values); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i := range v {
			if out[i], err = fill(v[i], values); err != nil {
				return nil, err
			}
		}
		return out, nil
	case template:
		return v.fill(values)
	}
	return v, nil
}

// fill is a value as it is, if the template is that value alone, and else a text.
func (t template) fill(values []any) (any, error) {
	if len(t) == 1 && t[0].literal == "" {
		return values[t[0].column], nil
	}
	var b strings.Builder
	for _, p := range t {
		b.WriteString(p.literal)
		if p.column < 0 {
			continue
		}
		switch v := values[p.column].(type) {
		case nil:
		case string:
			b.WriteString(v)
		default:
			text, err := encode(v)
			if err != nil {
				return nil, err
			}
			b.Write(text)
		}
	}
	return b.String(), nil
}

// jsonValue is a value as JSON has it.
func jsonValue(v *format.Value) (any, error) {
	switch v.Kind {
	case format.Null:
		return nil, nil
	case format.String:
		return string(v.Bytes), nil
	case format.Bytes:
		if !utf8.Valid(v.Bytes) {
			return nil, errors.New("has bytes that are no UTF-8")
		}
		return string(v.Bytes), nil
	case format.Int:
		return v.Int, nil
	case format.Float:
		if math.IsNaN(v.Float) || math.IsInf(v.Float, 0) {
			return nil, fmt.Errorf("has %v, which JSON cannot say", v.Float)
		}
		return json.Number(strconv.FormatFloat(v.Float, 'g', -1, 64)), nil
	case format.Bool:
		return v.Int != 0, nil
	case format.Tokens:
		return append([]int32{}, v.Tokens...), nil // without any, JSON would say null of nil
	}
	list := make([]any, len(v.List))
	for i := range v.List {
		e, err := jsonValue(&v.List[i])
		if err != nil {
			return nil, err
		}
		list[i] = e
	}
	return list, nil
}
