package jsonobject

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// appendUnescaped appends the text of a checked JSON string without its quotes.
func appendUnescaped(dst, s []byte) []byte {
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 {
			return append(dst, s...)
		}
		dst = append(dst, s[:i]...)
		c := s[i+1]
		s = s[i+2:]
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			var char rune
			char, s = unescapeRune(s)
			dst = utf8.AppendRune(dst, char)
		default: // " \ /
			dst = append(dst, c)
		}
	}
}

// unescapeRune reads the hex digits after \u, and a second escape if the two
// are a surrogate pair. A lone surrogate is U+FFFD.
func unescapeRune(s []byte) (rune, []byte) {
	char := hex4(s)
	s = s[4:]
	if !utf16.IsSurrogate(char) {
		return char, s
	}
	if len(s) >= 6 && s[0] == '\\' && s[1] == 'u' {
		if pair := utf16.DecodeRune(char, hex4(s[2:])); pair != utf8.RuneError {
			return pair, s[6:]
		}
	}
	return utf8.RuneError, s
}

func hex4(s []byte) rune {
	return hexDigit(s[0])<<12 | hexDigit(s[1])<<8 | hexDigit(s[2])<<4 | hexDigit(s[3])
}

// numberOf reads a checked JSON number.
func numberOf(s []byte) (format.Value, string) {
	if n, ok := parseInt(s); ok {
		return format.Value{Kind: format.Int, Int: n}, ""
	}
	f, err := strconv.ParseFloat(string(s), 64)
	if err != nil || math.IsInf(f, 0) {
		return format.Value{}, fmt.Sprintf("the number %s is beyond a 64-bit float", clipped(s))
	}
	return format.Value{Kind: format.Float, Float: f}, ""
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
