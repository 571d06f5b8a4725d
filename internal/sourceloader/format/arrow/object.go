package arrow

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/columnar"
)

// valueError is what is wrong with a value of a sound batch.
type valueError struct {
	path string // below the object
	err  error
}

func (e *valueError) Error() string { return e.err.Error() }
func (e *valueError) Unwrap() error { return e.err }

// below adds the part of an object in which an error is.
func below(part string, err error) error {
	if wrong, is := errors.AsType[*valueError](err); is {
		wrong.path = part + wrong.path
	}
	return err
}

// want marks the fields of a path, and all fields of objects.
func (l *loader) want(p *columnPath) {
	for _, f := range p.fields {
		l.wanted[f] = true
	}
	l.wantAll(p.leaf)
}

func (l *loader) wantAll(f *field) {
	l.wanted[f] = true
	for _, c := range f.children {
		l.wantAll(c)
	}
}

// typ is the type of what the path names.
func (p *columnPath) typ() format.Type {
	f := p.leaf
	if p.named < len(p.fields) {
		f = p.fields[p.named]
	}
	var name columnar.TypeName
	f.typeName(&name)
	return format.Type{Name: name.String(), Objects: p.leaf.isObject()}
}

// object writes value i of a, a struct or map that is there, as JSON.
func (c *column) object(a *vector, i int) (v format.Value, bad, err error) {
	w := objectWriter{c.objects}
	if a.f.kind == kindStruct {
		err = w.group(a, i)
	} else {
		err = w.list(a, i)
	}
	if wrong, is := errors.AsType[*valueError](err); is {
		return v, fmt.Errorf("field %q: %w", c.name+strings.Repeat("[]", len(c.path.steps)-c.path.named)+wrong.path, wrong.err), nil
	}
	if err != nil {
		return v, nil, err
	}
	return c.objects.End(), nil, nil
}

// objectWriter writes values of a batch as JSON. An error is a valueError, or of the batch.
type objectWriter struct{ *columnar.Objects }

// value writes value i of a; nothing if it is null.
func (w objectWriter) value(a *vector, i int) (null bool, err error) {
	for !a.isNull(i) && a.f.dictionary != nil {
		if a, i, err = a.lookUp(i); err != nil {
			return false, err
		}
	}
	_, list := a.f.element()
	switch {
	case a.isNull(i):
		return true, nil
	case a.f.kind == kindStruct:
		return false, w.group(a, i)
	case list:
		return false, w.list(a, i)
	}
	v, bad, err := a.leaf(i)
	if bad == nil && err == nil {
		bad = w.Value(&v, a.f.isJSON)
	}
	if bad != nil {
		err = &valueError{err: bad}
	}
	return false, err
}

func (w objectWriter) group(a *vector, i int) error {
	w.Text = append(w.Text, '{')
	first := true
	for _, field := range a.children {
		mark := len(w.Text)
		if !first {
			w.Text = append(w.Text, ',')
		}
		w.Text = append(columnar.AppendQuoted(w.Text, field.f.name), ':')
		null, err := w.value(field, i)
		if err != nil {
			return below("."+field.f.name, err)
		}
		if null {
			w.Text = w.Text[:mark]
		} else {
			first = false
		}
	}
	w.Text = append(w.Text, '}')
	return nil
}

// list writes a list, or a map as an object.
func (w objectWriter) list(a *vector, i int) error {
	begin, end := byte('['), byte(']')
	if a.f.isMap() {
		begin, end = '{', '}'
	}
	from, to, err := a.span(i, a.children[0].n)
	if err != nil {
		return err
	}
	if bad := w.Take(to - from); bad != nil {
		return &valueError{err: bad}
	}
	w.Text = append(w.Text, begin)
	for j := from; j < to; j++ {
		if j > from {
			w.Text = append(w.Text, ',')
		}
		if bad := w.Over(); bad != nil {
			return &valueError{err: bad}
		}
		if err := w.element(a, j); err != nil {
			return below("[]", err)
		}
	}
	w.Text = append(w.Text, end)
	return nil
}

// element writes element j of what a list holds, or key and value of a map. Null is written.
func (w objectWriter) element(a *vector, j int) error {
	value := a.children[0]
	if a.f.isMap() {
		key := value.children[0]
		v, bad, err := key.scalar(j)
		if bad == nil && err == nil {
			bad = w.Key(&v)
		}
		if bad != nil {
			err = &valueError{path: "." + key.f.name, err: bad}
		}
		if err != nil {
			return err
		}
		w.Text = append(w.Text, ':')
		value = value.children[1]
	}
	null, err := w.value(value, j)
	if null {
		w.Text = append(w.Text, "null"...)
	}
	return err
}

// scalar reads value i of a field without children.
func (a *vector) scalar(i int) (v format.Value, bad, err error) {
	for !a.isNull(i) && a.f.dictionary != nil {
		if a, i, err = a.lookUp(i); err != nil {
			return v, nil, err
		}
	}
	if a.isNull(i) {
		return v, nil, nil
	}
	return a.leaf(i)
}
