package jsonobject

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// stringAt reads the string at i, and returns the index after it, or -1. In the same pass it checks the
// string and, from its first escape on, copies its text into the scratch.
func (r *Reader) stringAt(i int) (v format.Value, end int) {
	start, mark, copied := i, len(r.text), false
	from := i + 1 // of what is not copied yet
	var seen uint64
	for i = from; ; from = i {
		i, seen = r.plain(i, seen)
		switch r.peek(i) {
		case '"':
			v = format.Value{Kind: format.String, Bytes: r.data[from:i]}
			if copied {
				r.text = append(r.text, v.Bytes...)
				v.Bytes = r.text[mark:len(r.text):len(r.text)]
			}
			return v, r.checked(start, i+1, seen)
		case '\\':
			if !copied { // no text is longer than what it is written as
				r.text, copied = slices.Grow(r.text, len(r.data)-from), true
			}
			r.text = append(r.text, r.data[from:i]...)
			if i = r.unescape(i); i < 0 {
				return v, -1
			}
		default:
			return v, r.broken(i)
		}
	}
}

// unescape appends what the escape at i stands for, and returns the index after it, or -1.
func (r *Reader) unescape(i int) (end int) {
	if end = r.escape(i); end < 0 {
		return -1
	}
	c := r.data[i+1]
	switch c {
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		return r.unescapeRune(hex4(r.data[i+2:]), end)
	}
	r.text = append(r.text, c) // or it is " \ /
	return end
}

// unescapeRune appends the character of a \u escape that ends at i, or of two if they are a surrogate
// pair. A lone surrogate is U+FFFD.
func (r *Reader) unescapeRune(char rune, i int) (end int) {
	end = i
	if utf16.IsSurrogate(char) {
		pair := utf8.RuneError
		if r.peek(i) == '\\' && r.peek(i+1) == 'u' {
			second := r.escape(i)
			if second < 0 {
				return -1
			}
			if pair = utf16.DecodeRune(char, hex4(r.data[i+2:])); pair != utf8.RuneError {
				end = second
			}
		}
		char = pair
	}
	r.text = utf8.AppendRune(r.text, char)
	return end
}

func hex4(s []byte) rune {
	return hexDigit(s[0])<<12 | hexDigit(s[1])<<8 | hexDigit(s[2])<<4 | hexDigit(s[3])
}

// numberOf reads a checked JSON number.
func numberOf(s []byte) (format.Value, error) {
	if n, ok := parseInt(s); ok {
		return format.Value{Kind: format.Int, Int: n}, nil
	}
	f, err := strconv.ParseFloat(string(s), 64)
	if err != nil || math.IsInf(f, 0) {
		return format.Value{}, fmt.Errorf("the number %s is beyond a 64-bit float: fix the record", clipped(s))
	}
	return format.Value{Kind: format.Float, Float: f}, nil
}

// parseInt reads a checked JSON number that has no fraction and no exponent.
func parseInt(s []byte) (int64, bool) {
	digits := s
	if s[0] == '-' {
		digits = s[1:]
	}
	var n uint64
	for _, c := range digits {
		if c < '0' || c > '9' || n > math.MaxInt64/10 {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	switch {
	case n <= math.MaxInt64 && len(digits) == len(s):
		return int64(n), true
	case n <= math.MaxInt64+1 && len(digits) < len(s):
		return -int64(n), true
	}
	return 0, false
}

// clipped returns s for an error message, cut to a readable length.
func clipped(s []byte) string {
	if len(s) <= 40 {
		return string(s)
	}
	return string(s[:40]) + "..."
}

// jsonKind names the kind of the JSON value that begins with c.
func jsonKind(c byte) string {
	switch c {
	case '{':
		return "object"
	case '[':
		return "list"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}
