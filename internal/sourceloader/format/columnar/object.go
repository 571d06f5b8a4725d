package columnar

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// Objects writes the groups of fields of a row as JSON text, which is what an object of a
// JSON file is when it is taken whole. A field that is null is left out by whoever writes: a
// group has every field of its schema, and null in those that the record never had. Elements
// of lists and values of maps are written as null.
//
// It bounds a row: the elements of all its lists, and its text. The zero value has to be
// Reset. Not safe for concurrent use.
type Objects struct {
	Text []byte
	ends []int // of each group, in Text

	elements, left int   // allowed, and of these not yet taken
	bytes          int64 // allowed
}

// NewObjects returns an Objects of rows with at most this many elements and bytes.
func NewObjects(elements int, bytes int64) *Objects {
	return &Objects{elements: elements, bytes: bytes}
}

// Reset begins a row. Values of the one before are valid no longer.
func (o *Objects) Reset() { o.Text, o.ends, o.left = o.Text[:0], o.ends[:0], o.elements }

// Take counts elements of a list, before memory is taken for them.
func (o *Objects) Take(n int) error {
	if n > o.left {
		return format.TooMany(o.elements)
	}
	o.left -= n
	return nil
}

// Over is the error of a row whose text is too long, nil if it is not.
func (o *Objects) Over() error {
	if int64(len(o.Text)) > o.bytes {
		return format.TooLong(o.bytes, "its text is")
	}
	return nil
}

// End ends a group that is a value of the row. The value has its text after Place only, since
// Text may move until then.
func (o *Objects) End() format.Value {
	o.ends = append(o.ends, len(o.Text))
	return format.Value{Kind: format.String}
}

// Place gives all groups in the value of a row their texts.
func (o *Objects) Place(v *format.Value) {
	o.place(v, 0, 0)
}

func (o *Objects) place(v *format.Value, k, from int) (next, end int) {
	switch v.Kind {
	case format.String:
		v.Bytes = o.Text[from:o.ends[k]:o.ends[k]]
		return k + 1, o.ends[k]
	case format.List:
		for i := range v.List {
			k, from = o.place(&v.List[i], k, from)
		}
	}
	return k, from
}

// Held is the memory of the text, in bytes.
func (o *Objects) Held() int64 { return int64(cap(o.Text) + 8*cap(o.ends)) }

// Value writes a value that is neither a list nor token ids. isJSON says that it is text that
// holds JSON, which is written as that and not as a text.
func (o *Objects) Value(v *format.Value, isJSON bool) error {
	switch v.Kind {
	case format.Null:
		o.Text = append(o.Text, "null"...)
	case format.Bool:
		o.Text = strconv.AppendBool(o.Text, v.Int != 0)
	case format.Int:
		o.Text = strconv.AppendInt(o.Text, v.Int, 10)
	case format.Float:
		if math.IsNaN(v.Float) || math.IsInf(v.Float, 0) {
			return fault.Userf("the number %v has no JSON form; write null, or leave it out", v.Float)
		}
		o.float(v.Float)
	case format.String:
		if int64(len(v.Bytes)) > o.bytes { // before it is copied
			return format.TooLong(o.bytes, "a text of %d bytes is", len(v.Bytes))
		}
		if !isJSON {
			o.Text = AppendQuoted(o.Text, v.Bytes)
			break
		}
		if !json.Valid(v.Bytes) {
			return fault.Userf("it is of type json, and its text is no JSON")
		}
		o.Text = append(o.Text, v.Bytes...)
	default:
		return fault.Userf("it is binary, which JSON text cannot hold: write text, or name the other fields one by one")
	}
	return o.Over()
}

// float writes a number that reads as one with a fraction.
func (o *Objects) float(f float64) {
	from := len(o.Text)
	form := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		form = 'e'
	}
	o.Text = strconv.AppendFloat(o.Text, f, form, -1, 64)
	if !slices.ContainsFunc(o.Text[from:], func(c byte) bool { return c == '.' || c == 'e' }) {
		o.Text = append(o.Text, ".0"...)
	}
}

// Key writes a key of a map, which need not be text.
func (o *Objects) Key(v *format.Value) error {
	switch v.Kind {
	case format.Null:
		return fault.Userf("a key of the map is null")
	case format.String:
		return o.Value(v, false)
	}
	o.Text = append(o.Text, '"')
	err := o.Value(v, false)
	o.Text = append(o.Text, '"')
	return err
}

// escapes are the characters with a short escape.
var escapes = [0x20]byte{'\b': 'b', '\t': 't', '\n': 'n', '\f': 'f', '\r': 'r'}

// AppendQuoted appends text as a JSON string. The text is UTF-8.
func AppendQuoted[T string | []byte](dst []byte, text T) []byte {
	const hex = "0123456789abcdef"
	dst = slices.Grow(dst, len(text)+2)
	dst = append(dst, '"')
	from := 0
	for i := range len(text) {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, text[from:i]...)
		switch from = i + 1; {
		case c >= ' ':
			dst = append(dst, '\\', c)
		case escapes[c] != 0:
			dst = append(dst, '\\', escapes[c])
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	dst = append(dst, text[from:]...)
	return append(dst, '"')
}
