package parquet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/columnar"
)

// objects reads a column of groups of fields, or of lists of them, row by row. A group becomes
// its JSON text, written from the levels of all columns below it as they go by: so one page
// of each is in memory, whatever a row holds. Not safe for concurrent use.
type objects struct {
	*columnar.Objects
	lists  []int // as in field
	shape  *shape
	leaves []*column

	open     []format.Value // elements of the lists being read
	finished []format.Value // scratch of finished lists
}

// valueError is what is wrong with a value of a sound page: reading goes on after its row.
type valueError struct{ error }

func (e *valueError) Unwrap() error { return e.error }

// errUneven reports columns of a group that do not agree on where the group, or a list in it, is.
var errUneven = fault.Userf("the columns of the group do not fit each other (damaged)")

func newObjects(ctx context.Context, r io.ReaderAt, f *footer, what field, name string, limits limits) (*objects, error) {
	s, err := shapeOf(what.object, name+strings.Repeat("[]", what.unsaid), 0, what.object.node.first)
	if err != nil {
		return nil, err
	}
	o := &objects{Objects: columnar.NewObjects(limits.elements, limits.bytes), lists: what.lists, shape: s}
	for _, leaf := range s.leaves(nil) {
		c := spareColumns.Get().(*column)
		o.leaves = append(o.leaves, c)
		c.field = field{leaf: leaf}
		err := leaf.trusted(name)
		if err == nil {
			err = c.pages.open(ctx, r, f, leaf)
		}
		if err != nil {
			o.release()
			return nil, err
		}
	}
	return o, nil
}

// leaves appends the leaves of a shape, in order.
func (s *shape) leaves(to []*node) []*node {
	if s.leaf != nil {
		return append(to, s.leaf)
	}
	for _, part := range s.parts {
		to = part.leaves(to)
	}
	return to
}

// next reads the value of the next row, as column.next does.
func (o *objects) next() (v format.Value, bad, err error) {
	o.Reset()
	o.open, o.finished = o.open[:0], o.finished[:0]
	for _, c := range o.leaves {
		c.inRow = false
		rep, _, err := c.peek()
		switch {
		case err != nil:
			return v, nil, err
		case rep < 0:
			return v, nil, fault.Userf("the column ends before the row group does (truncated or damaged)")
		case rep > 0:
			return v, nil, fault.Userf("the column starts in the middle of a row (damaged)")
		}
	}
	if v, err = o.value(0); err == nil {
		o.Place(&v)
		return v, nil, o.rowIsOver()
	}
	if wrong, is := errors.AsType[*valueError](err); is {
		return format.Value{}, wrong.error, o.skipRow()
	}
	return v, nil, err
}

// rowIsOver checks that no column has more of the row.
func (o *objects) rowIsOver() error {
	for _, c := range o.leaves {
		if rep, _, err := c.peek(); err != nil {
			return err
		} else if rep > 0 {
			return errUneven
		}
	}
	return nil
}

// skipRow goes to the next row, from anywhere in this one.
func (o *objects) skipRow() error {
	for _, c := range o.leaves {
		if !c.inRow {
			c.take()
		}
		for {
			rep, _, err := c.peek()
			if err != nil {
				return err
			}
			if rep <= 0 {
				break
			}
			c.take()
		}
	}
	return nil
}

// value reads what is below the lists on the path before depth.
func (o *objects) value(depth int) (v format.Value, err error) {
	if depth == len(o.lists) {
		null, err := o.write(o.shape)
		if err != nil || null {
			return v, err
		}
		return o.End(), nil
	}
	_, def, err := o.leaves[0].peek()
	if err != nil {
		return v, err
	}
	if elem := o.lists[depth]; def < elem {
		if def == elem-1 {
			v.Kind = format.List
		}
		return v, o.pass(o.leaves, elem)
	}
	mark := len(o.open)
	for more := true; more; {
		if err := o.Take(1); err != nil {
			return v, &valueError{err}
		}
		item, err := o.value(depth + 1)
		if err != nil {
			return v, err
		}
		o.open = append(o.open, item)
		if more, err = goOn(o.leaves, depth+1); err != nil {
			return v, err
		}
	}
	from := len(o.finished)
	o.finished = append(o.finished, o.open[mark:]...)
	o.open = o.open[:mark]
	return format.Value{Kind: format.List, List: o.finished[from:len(o.finished):len(o.finished)]}, nil
}

// pass steps over a value that is not there: columns are at one level, below that at
// which it would be.
func (o *objects) pass(leaves []*column, there int) error {
	_, first, err := leaves[0].peek()
	if err != nil {
		return err
	}
	for _, c := range leaves {
		_, def, err := c.peek()
		if err != nil {
			return err
		}
		if def != first || def >= there {
			return errUneven
		}
		c.take()
	}
	return nil
}

// goOn reports whether a list has a further element, whose repetition level is rep.
func goOn(leaves []*column, rep int) (more bool, err error) {
	for i, c := range leaves {
		next, _, err := c.peek()
		if err != nil {
			return false, err
		}
		if i == 0 {
			more = next == rep
		}
		if next > rep || (next == rep) != more {
			return false, errUneven
		}
	}
	return more, nil
}

// write writes a part of a group as JSON; nothing if it is null.
func (o *objects) write(s *shape) (null bool, err error) {
	leaves := o.leaves[s.from:s.to]
	_, def, err := leaves[0].peek()
	switch {
	case err != nil:
		return false, err
	case def < s.above:
		return false, errUneven
	case s.is == isLeaf:
		return o.writeLeaf(s, leaves[0], def)
	case def < s.def:
		return true, o.pass(leaves, s.def)
	case s.is == isGroup:
		return false, o.writeGroup(s)
	}
	return false, o.writeList(s, leaves, def)
}

func (o *objects) writeLeaf(s *shape, c *column, def int) (null bool, err error) {
	if def < s.def {
		c.take()
		return true, nil
	}
	v, err := s.leaf.valueAt(c.page, c.value)
	if err == nil {
		err = o.Value(&v, s.isJSON)
	}
	if err != nil {
		return false, &valueError{fmt.Errorf("field %q: %w", s.path, err)}
	}
	c.take()
	return false, nil
}

func (o *objects) writeGroup(s *shape) error {
	o.Text = append(o.Text, '{')
	first := true
	for _, field := range s.parts {
		mark := len(o.Text)
		if !first {
			o.Text = append(o.Text, ',')
		}
		o.Text = append(o.Text, field.key...)
		null, err := o.write(field)
		if err != nil {
			return err
		}
		if null {
			o.Text = o.Text[:mark]
		} else {
			first = false
		}
	}
	o.Text = append(o.Text, '}')
	return nil
}

// writeList writes a list, or a map as an object.
func (o *objects) writeList(s *shape, leaves []*column, def int) error {
	begin, end := byte('['), byte(']')
	if s.is == isMap {
		begin, end = '{', '}'
	}
	o.Text = append(o.Text, begin)
	if def < s.elem {
		o.Text = append(o.Text, end)
		return o.pass(leaves, s.elem)
	}
	for first, more := true, true; more; first = false {
		if !first {
			o.Text = append(o.Text, ',')
		}
		err := o.Take(1)
		if err == nil {
			err = o.Over()
		}
		if err != nil {
			return &valueError{err}
		}
		if err = o.writeElement(s); err != nil {
			return err
		}
		if more, err = goOn(leaves, s.rep); err != nil {
			return err
		}
	}
	o.Text = append(o.Text, end)
	return nil
}

// writeElement writes an element of a list, or a key and a value of a map. Null is written.
func (o *objects) writeElement(s *shape) error {
	value := s.parts[len(s.parts)-1]
	if s.is == isMap {
		if err := o.writeKey(s.parts[0]); err != nil {
			return err
		}
	}
	null, err := o.write(value)
	if null {
		o.Text = append(o.Text, "null"...)
	}
	return err
}

func (o *objects) writeKey(s *shape) error {
	c := o.leaves[s.from]
	_, def, err := c.peek()
	if err != nil {
		return err
	}
	var v format.Value
	if def >= s.def {
		v, err = s.leaf.valueAt(c.page, c.value)
	}
	if err == nil {
		err = o.Key(&v)
	}
	if err != nil {
		return &valueError{fmt.Errorf("field %q: %w", s.path, err)}
	}
	c.take()
	o.Text = append(o.Text, ':')
	return nil
}

// peek returns the levels of the next value, of which rep is below 0 after the last.
func (c *column) peek() (rep, def int, err error) {
	ok, err := c.load()
	if err != nil || !ok {
		return -1, -1, err
	}
	if c.field.leaf.maxRep > 0 {
		rep = int(c.page.reps[c.at])
	}
	return rep, c.levelAt(c.at), nil
}

// take steps over the value that peek told of.
func (c *column) take() {
	if c.levelAt(c.at) == c.field.leaf.maxDef {
		c.value++
	}
	c.at++
	c.inRow = true
}

// finish implements reader.
func (o *objects) finish() error {
	for _, c := range o.leaves {
		if err := c.finish(); err != nil {
			return err
		}
	}
	return nil
}

// held implements reader.
func (o *objects) held() int64 {
	held := o.Held() + format.ValueBytes*int64(cap(o.open)+cap(o.finished))
	for _, c := range o.leaves {
		held += c.held()
	}
	return held
}

// release implements reader.
func (o *objects) release() {
	for _, c := range o.leaves {
		c.release()
	}
	o.leaves = nil
}
