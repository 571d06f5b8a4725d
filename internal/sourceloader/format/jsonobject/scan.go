package jsonobject

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// maxDepth bounds the nesting of one JSON value: what encoding/json allows,
// and far above real data.
const maxDepth = 10_000

// scanner checks JSON as RFC 8259 has it, and nothing more lenient, and
// steps over it. It is not recursive, so that hostile nesting costs bytes and
// no stack. Its methods take the index of a token's first byte and return the
// index after its last, or -1 after noting what is wrong.
type scanner struct {
	data []byte
	nest []byte // the brackets that are open: { or [
	at   int    // where the fault is; len(data) if data merely ends too soon
	why  string
}

func (s *scanner) fail(at int, why string) int {
	s.at, s.why = min(at, len(s.data)), why
	return -1
}

// short reports that the fault would go if more data followed.
func (s *scanner) short() bool { return s.at == len(s.data) }

// problem describes the fault, at a byte counted from 1 as editors do.
func (s *scanner) problem() string {
	if s.short() {
		return "it ends too soon: " + s.why
	}
	return fmt.Sprintf("at its byte %d, which is %q: %s", s.at+1, s.data[s.at:min(s.at+1, len(s.data))], s.why)
}

// peek returns the byte at i, and 0, which no token begins with, at the end.
func (s *scanner) peek(i int) byte {
	if i < len(s.data) {
		return s.data[i]
	}
	return 0
}

func (s *scanner) space(i int) int {
	for i < len(s.data) && IsSpace(s.data[i]) {
		i++
	}
	return i
}

// IsSpace reports whether c is white space in JSON.
func IsSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// value steps over one value of any kind; the brackets open before it stay.
func (s *scanner) value(i int) int {
	outer := len(s.nest)
	for {
		i = s.space(i)
		switch c := s.peek(i); c {
		case '{', '[':
			empty := false
			if i, empty = s.enter(i, c); i < 0 {
				return -1
			}
			if !empty {
				continue
			}
		default:
			if i = s.scalar(i); i < 0 {
				return -1
			}
		}
		if i = s.leave(i, outer); i < 0 || len(s.nest) == outer {
			return i
		}
	}
}

// enter opens a bracket and returns the index of the first value in it; or, if
// it is empty, that of the closing bracket, which leave takes.
func (s *scanner) enter(i int, open byte) (next int, empty bool) {
	if len(s.nest) >= maxDepth {
		return s.fail(i, fmt.Sprintf("nested more than %d deep", maxDepth)), false
	}
	s.nest = append(s.nest, open)
	i = s.space(i + 1)
	switch {
	case s.peek(i) == closing(open):
		return i, true
	case open == '{':
		return s.key(i), false
	}
	return i, false
}

// closing returns the bracket that closes open: ASCII has both pairs two apart.
func closing(open byte) byte { return open + 2 }

// leave steps over what may follow a value: closing brackets, until only outer
// ones are open, or a comma (and the next key).
func (s *scanner) leave(i, outer int) int {
	for len(s.nest) > outer {
		open := s.nest[len(s.nest)-1]
		i = s.space(i)
		switch c := s.peek(i); {
		case c == closing(open):
			s.nest = s.nest[:len(s.nest)-1]
			i++
		case c == ',' && open == '{':
			return s.key(s.space(i + 1))
		case c == ',':
			return i + 1
		default:
			return s.fail(i, fmt.Sprintf("a comma or %c is expected here", closing(open)))
		}
	}
	return i
}

// key steps over a key and its colon.
func (s *scanner) key(i int) int {
	if s.peek(i) != '"' {
		return s.fail(i, "a key in double quotes is expected here")
	}
	if i = s.str(i); i < 0 {
		return -1
	}
	if i = s.space(i); s.peek(i) != ':' {
		return s.fail(i, "a colon is expected here")
	}
	return s.space(i + 1)
}

func (s *scanner) scalar(i int) int {
	switch c := s.peek(i); {
	case c == '"':
		return s.str(i)
	case c == '-' || c >= '0' && c <= '9':
		return s.number(i)
	case c == 't':
		return s.literal(i, "true")
	case c == 'f':
		return s.literal(i, "false")
	case c == 'n':
		return s.literal(i, "null")
	}
	return s.fail(i, "a value is expected here")
}

func (s *scanner) literal(i int, word string) int {
	for j := range len(word) {
		if s.peek(i+j) != word[j] {
			return s.fail(i+j, "only true, false and null are words")
		}
	}
	return i + len(word)
}

func (s *scanner) number(i int) int {
	if s.data[i] == '-' {
		i++
	}
	if s.peek(i) == '0' {
		i++
	} else if i = s.digits(i); i < 0 {
		return -1
	}
	if s.peek(i) == '.' {
		if i = s.digits(i + 1); i < 0 {
			return -1
		}
	}
	if c := s.peek(i); c == 'e' || c == 'E' {
		i++
		if c := s.peek(i); c == '+' || c == '-' {
			i++
		}
		return s.digits(i)
	}
	return i
}

func (s *scanner) digits(i int) int {
	from := i
	for i < len(s.data) && s.data[i]-'0' <= 9 {
		i++
	}
	if i == from {
		return s.fail(i, "a digit is expected here")
	}
	return i
}

const (
	ones  = 0x0101010101010101 // 1 in each byte
	highs = 0x8080808080808080 // the top bit of each byte
)

// str steps over a string, and checks its UTF-8.
func (s *scanner) str(i int) int {
	from := i
	i++
	var seen uint64
	for {
		i, seen = s.plain(i, seen)
		switch s.peek(i) {
		case '"':
			return s.checked(from, i+1, seen)
		case '\\':
			if i = s.escape(i); i < 0 {
				return -1
			}
		default:
			return s.broken(i)
		}
	}
}

// plain steps over what stands for itself in a string, eight bytes at a time, and adds its bits to seen.
func (s *scanner) plain(i int, seen uint64) (int, uint64) {
	data := s.data
	for ; len(data)-i >= 8; i += 8 {
		w := binary.LittleEndian.Uint64(data[i:])
		seen |= w
		// The lowest top bit set marks the first quote, control byte or backslash. A quote changes places with the
		// space, so that what is below its place or in it is one of the first two.
		quote, slash := w^ones*('"'^' '), w^ones*'\\'
		if stop := ((quote-ones*(' '+1))&^w | (slash-ones)&^slash) & highs; stop != 0 {
			return i + bits.TrailingZeros64(stop)/8, seen
		}
	}
	for ; i < len(s.data) && s.data[i] != '"' && s.data[i] != '\\' && s.data[i] >= ' '; i++ {
		seen |= uint64(s.data[i])
	}
	return i, seen
}

// broken reports what is wrong with a string at i.
func (s *scanner) broken(i int) int {
	if i >= len(s.data) {
		return s.fail(i, "a string is open")
	}
	return s.fail(i, "a control character must be escaped in a string")
}

// checked checks the UTF-8 of a string that is not plain ASCII.
func (s *scanner) checked(from, to int, seen uint64) int {
	if seen&highs == 0 || utf8.Valid(s.data[from:to]) {
		return to
	}
	return s.fail(from+format.InvalidUTF8(s.data[from:to]), "it is not valid UTF-8")
}

func (s *scanner) escape(i int) int {
	switch s.peek(i + 1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		for j := i + 2; j < i+6; j++ {
			if hexDigit(s.peek(j)) < 0 {
				return s.fail(j, `four hex digits must follow \u`)
			}
		}
		return i + 6
	}
	return s.fail(i+1, `after a backslash only " \ / b f n r t u are valid`)
}

func hexDigit(c byte) rune {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0')
	case c >= 'a' && c <= 'f':
		return rune(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return rune(c-'A') + 10
	}
	return -1
}

// IsValue reports whether data is one valid value that white space may follow.
func IsValue(data []byte) bool {
	s := scanner{data: data}
	end := s.value(0)
	return end >= 0 && s.space(end) == len(data)
}
