// Package jsonobject takes fields out of JSON objects, in one pass that checks the
// whole object: what JSON Lines, JSON arrays and the JSON members of a tar need.
//
// It owns the meaning of a JSON value as a [format.Value]. It never reads a file
// and knows nothing of where its objects come from.
package jsonobject

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fieldpath"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// Reader reads the wanted fields of JSON objects, one object after the
// other. It checks each object in full, as RFC 8259 has it, in the same pass that
// finds the fields. Its values borrow from the object's bytes and from scratch that
// the next object reuses. Not safe for concurrent use.
//
// Where JSON leaves a choice: of equal keys the last counts, as in Python and
// Go; \u escapes of lone surrogates become U+FFFD; a number without fraction
// and exponent that fits in int64 is an Int, any other a Float; an object taken
// whole is a String, its JSON text; a list of integers of 32 bits is Tokens,
// any other a List, and so is an empty one, which may be a list of anything.
type Reader struct {
	scanner
	paths  []fieldpath.Path
	places []int // per path: where the value of its first key begins, or absent or taken
	values []format.Value

	text   []byte         // scratch of unescaped strings
	tokens []int32        // scratch of token lists
	lists  []format.Value // scratch of finished lists
	open   []format.Value // elements of the lists being read

	limit int   // elements of the lists in one field
	left  int   // of them, for the field being read
	field error // what is wrong with a field
}

// Places of values that are looked for no more.
const (
	absent = -1 - iota // the object has no such key
	taken              // the value is a string, which is read
)

// maxScratch is the most text that is kept for the next Reader: what books need.
const maxScratch = 8 << 20

// texts holds scratch of unescaped strings: without it, much of the time of a short
// read goes into clearing new memory.
var texts = sync.Pool{New: func() any { return new([]byte) }}

// New returns a reader of these fields; the lists of one may have limit elements.
// Release it after use.
func New(columns []string, limit int) (*Reader, error) {
	r := &Reader{
		text:   *texts.Get().(*[]byte),
		limit:  limit,
		places: make([]int, len(columns)),
		values: make([]format.Value, len(columns)),
	}
	for _, column := range columns {
		path, err := fieldpath.Parse(column)
		if err != nil {
			return nil, err
		}
		r.paths = append(r.paths, path)
	}
	return r, nil
}

// Release gives the reader's scratch to the next one. Neither the reader nor its
// values may be used after.
func (r *Reader) Release() {
	if text := r.text[:0]; cap(text) <= maxScratch {
		texts.Put(&text)
	}
	r.text = nil
}

// Held is the memory of the scratch, in bytes.
func (r *Reader) Held() int64 {
	values := cap(r.values) + cap(r.lists) + cap(r.open)
	return int64(cap(r.text) + 4*cap(r.tokens) + format.ValueBytes*values + cap(r.nest))
}

// Field is the error of class fault.User of a field of the object that was read last, with its
// name, such as format.ErrTooMany or a format.WrongPath; nil if the object itself is wrong, or nothing.
func (r *Reader) Field() error { return r.field }

// Scan checks the JSON value that data begins with. It returns the index after it,
// or -1 and what is wrong; short says that more data could make it right.
func (r *Reader) Scan(data []byte) (end int, short bool, problem string) {
	r.data, r.nest = data, r.nest[:0]
	if end = r.value(0); end < 0 {
		return end, r.short(), r.problem()
	}
	return end, false, ""
}

// Read returns the wanted fields of the object that data holds, and what is
// wrong with data if anything is. The values are valid until the next Read.
func (r *Reader) Read(data []byte) (values []format.Value, problem string) {
	r.data, r.nest = data, r.nest[:0]
	r.text, r.tokens, r.lists, r.open = r.text[:0], r.tokens[:0], r.lists[:0], r.open[:0]
	r.field = nil
	start := r.space(0)
	end := r.top(start)
	if end >= 0 {
		if end = r.space(end); end < len(data) {
			r.fail(end, "only white space may follow the value")
			end = -1
		}
	}
	if end < 0 {
		return nil, "not valid JSON: " + r.problem()
	}
	if data[start] != '{' {
		return nil, fmt.Sprintf("a JSON %s, but a record is an object: {\"text\": ...}", jsonKind(data[start]))
	}
	for i, path := range r.paths {
		switch at := r.places[i]; at {
		case absent:
			r.values[i] = format.Value{Absent: true}
		case taken:
		default:
			r.left = r.limit
			var err error
			if r.values[i], err = r.pick(at, path, 1); err != nil {
				r.field = fault.Userf("field %q: %w", path, err)
				return nil, r.field.Error()
			}
		}
	}
	return r.values, ""
}

// top steps over the record, takes strings that are wanted, and notes where other values of the paths begin.
func (r *Reader) top(i int) int {
	for n := range r.places {
		r.places[n] = absent
	}
	if r.peek(i) != '{' {
		return r.value(i)
	}
	return r.members(i, func(key []byte, at int) (end int) {
		text := -1 // the first path whose value this is, if it is a string
		for n, path := range r.paths {
			switch {
			case string(key) != path[0].Key:
			case len(path) > 1 || r.peek(at) != '"':
				r.places[n] = at
			case text < 0:
				text, r.places[n] = n, taken
				r.values[n], end = r.stringAt(at)
			default:
				r.values[n], r.places[n] = r.values[text], taken
			}
		}
		if text < 0 {
			return r.value(at)
		}
		return end
	})
}

// members steps over an object and calls value with each key and where its value begins: it steps
// over that, and may fail as all that steps.
func (r *Reader) members(i int, value func(key []byte, at int) (end int)) int {
	outer := len(r.nest)
	i, empty := r.enterObject(i)
	for i >= 0 && !empty {
		quote := i
		if i = r.key(i); i < 0 {
			break
		}
		if i = value(r.keyAt(quote), i); i < 0 {
			break
		}
		i = r.space(i)
		switch r.peek(i) {
		case ',':
			i = r.space(i + 1)
		case '}':
			empty = true
		default:
			i = r.fail(i, "a comma or } is expected here")
		}
	}
	r.nest = r.nest[:outer]
	if i < 0 {
		return -1
	}
	return i + 1
}

// enterObject returns the index of the first key, or that of the bracket that
// closes an empty object.
func (r *Reader) enterObject(i int) (next int, empty bool) {
	r.nest = append(r.nest, '{')
	i = r.space(i + 1)
	return i, r.peek(i) == '}'
}

// keyAt returns the text of the checked key whose quote is at i.
func (r *Reader) keyAt(i int) []byte {
	end := bytes.IndexByte(r.data[i+1:], '"') + i + 1
	if bytes.IndexByte(r.data[i:end], '\\') < 0 {
		return r.data[i+1 : end]
	}
	key, _ := r.stringAt(i)
	return key.Bytes
}

// pick follows a path from the checked value at i, which is that of the steps before step, and reads what
// is there. null and what is absent are Null; another kind than the path says is an error.
func (r *Reader) pick(i int, path fieldpath.Path, step int) (v format.Value, err error) {
	if step == len(path) {
		v, _, err = r.read1(i)
		return v, err
	}
	switch c := r.data[i]; {
	case c == 'n':
		return format.Value{}, nil
	case path[step].Each && c == '[':
		return r.pickEach(i, path, step+1)
	case path[step].Each || c != '{':
		return format.Value{}, wrongPath(path, step, c)
	}
	at := -1
	r.members(i, func(key []byte, value int) int {
		if string(key) == path[step].Key {
			at = value
		}
		return r.value(value)
	})
	if at < 0 {
		return format.Value{Absent: true}, nil
	}
	return r.pick(at, path, step+1)
}

// wrongPath is the error of a path whose next step does not go through a value, which begins with c.
func wrongPath(path fieldpath.Path, step int, c byte) error {
	const remedy = "correct the name in the spec, or fix the record"
	what, kind := fmt.Sprintf("%q", path[:step]), "a "+jsonKind(c)
	if path[step-1].Each {
		what = fmt.Sprintf("an element of %q", path[:step-1])
	}
	if c == '{' {
		kind = "an object"
	}
	w := &format.WrongPath{Name: path.String()}
	switch {
	case path[step].Each:
		w.Why = fmt.Sprintf("%s is %s and no list: %s", what, kind, remedy)
	case c == '[':
		through := slices.Insert(slices.Clone(path), step, fieldpath.Step{Each: true})
		w.Why = fmt.Sprintf("%s is a list: write %q in the spec, or fix the record", what, through)
	default:
		w.Why = fmt.Sprintf("%s is %s and has no field %q: %s", what, kind, path[step].Key, remedy)
	}
	return w
}

// Lacks is Record.Lacks for the object that was read last.
func (r *Reader) Lacks(column int) (missing string, has []string) {
	return r.missing(r.space(0), r.paths[column])
}

// missing follows steps from the checked value at i to the first key that is not there.
func (r *Reader) missing(i int, steps fieldpath.Path) (key string, has []string) {
	switch {
	case len(steps) == 0 || r.data[i] == 'n':
		return "", nil
	case steps[0].Each:
		for i = r.space(i + 1); r.data[i] != ']'; i = r.nextElement(i) {
			if key, has = r.missing(i, steps[1:]); key != "" {
				return key, has
			}
			i = r.value(i)
		}
		return "", nil
	}
	at := -1
	r.members(i, func(key []byte, value int) int {
		if has = append(has, string(key)); string(key) == steps[0].Key {
			at = value
		}
		return r.value(value)
	})
	if at < 0 {
		return steps[0].Key, has
	}
	return r.missing(at, steps[1:])
}

func (r *Reader) pickEach(i int, path fieldpath.Path, step int) (format.Value, error) {
	mark, absent := len(r.open), false
	for i = r.space(i + 1); r.data[i] != ']'; i = r.nextElement(i) {
		if err := r.element(); err != nil {
			return format.Value{}, err
		}
		v, err := r.pick(i, path, step)
		if err != nil {
			return format.Value{}, err
		}
		r.open = append(r.open, v)
		absent = absent || v.Absent
		i = r.value(i)
	}
	list := r.closeList(mark)
	list.Absent = absent
	return list, nil
}

// element counts one of a list before memory is taken for it.
func (r *Reader) element() error {
	if r.left--; r.left < 0 {
		return format.TooMany(r.limit)
	}
	if len(r.open) == cap(r.open) { // double it: what append grew from would be garbage several times as large
		r.open = slices.Grow(r.open, min(len(r.open), r.left)+1)
	}
	return nil
}

// nextElement steps from the end of an element to the next, or to the bracket.
func (r *Reader) nextElement(i int) int {
	if i = r.space(i); r.data[i] == ',' {
		return r.space(i + 1)
	}
	return i
}

// closeList makes a List of the open elements from mark on.
func (r *Reader) closeList(mark int) format.Value {
	from := len(r.lists)
	r.lists = append(r.lists, r.open[mark:]...)
	r.open = r.open[:mark]
	return format.Value{Kind: format.List, List: r.lists[from:len(r.lists):len(r.lists)]}
}

// read1 reads the one checked value at i, whole, and returns where it ends.
func (r *Reader) read1(i int) (v format.Value, end int, err error) {
	switch r.data[i] {
	case '{':
		end = r.value(i)
		return format.Value{Kind: format.String, Bytes: r.data[i:end]}, end, nil
	case '"':
		v, end = r.stringAt(i)
		return v, end, nil
	case '[':
		return r.list(i)
	case 't':
		return format.Value{Kind: format.Bool, Int: 1}, i + len("true"), nil
	case 'f':
		return format.Value{Kind: format.Bool}, i + len("false"), nil
	case 'n':
		return format.Value{}, i + len("null"), nil
	}
	end = r.number(i)
	v, err = numberOf(r.data[i:end])
	return v, end, err
}

func (r *Reader) list(i int) (format.Value, int, error) {
	if v, end, ok := r.tokenList(i); ok {
		return v, end, nil
	}
	mark := len(r.open)
	for i = r.space(i + 1); r.data[i] != ']'; i = r.nextElement(i) {
		if err := r.element(); err != nil {
			return format.Value{}, 0, err
		}
		v, end, err := r.read1(i)
		if err != nil {
			return format.Value{}, 0, err
		}
		r.open = append(r.open, v)
		i = end
	}
	return r.closeList(mark), i + 1, nil
}

// tokenList reads the checked list at i if it holds integers of 32 bits, and nothing else.
func (r *Reader) tokenList(i int) (v format.Value, end int, ok bool) {
	from := len(r.tokens)
	for i = r.space(i + 1); r.data[i] != ']'; i = r.nextElement(i) {
		c := r.data[i]
		if c != '-' && (c < '0' || c > '9') {
			r.tokens = r.tokens[:from]
			return format.Value{}, 0, false
		}
		end := r.number(i)
		n, ok := parseInt(r.data[i:end])
		if !ok || n != int64(int32(n)) {
			r.tokens = r.tokens[:from]
			return format.Value{}, 0, false
		}
		r.tokens = append(r.tokens, int32(n))
		i = end
	}
	return format.Value{Kind: format.Tokens, Tokens: r.tokens[from:len(r.tokens):len(r.tokens)]}, i + 1, len(r.tokens) > from
}
