package filter

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/fault"
)

type tokenKind uint8

const (
	tokEnd    tokenKind = iota
	tokName             // a keyword, function name or column path
	tokColumn           // a column path in backquotes
	tokNumber           // text is the literal
	tokString           // text is the value
	tokOp               // text is the operator or bracket
)

type token struct {
	kind tokenKind
	pos  int // byte offset in the expression
	text string
}

// errorAt is an error of class fault.User at byte offset pos of src. It shows
// the place as a 1-based column in characters and by what stands there.
func errorAt(src string, pos int, format string, args ...any) error {
	column, near := utf8.RuneCountInString(src[:pos])+1, []rune(src[pos:])
	place := fmt.Sprintf("column %d (the end)", column)
	switch {
	case len(near) > nearRunes:
		place = fmt.Sprintf("column %d (%q…)", column, string(near[:nearRunes]))
	case len(near) > 0:
		place = fmt.Sprintf("column %d (%q)", column, string(near))
	}
	return fault.Userf("filter, %s: %s", place, fmt.Sprintf(format, args...))
}

// nearRunes is how much of the expression an error shows: enough to find the
// place by eye, short enough for one line.
const nearRunes = 24

type lexer struct {
	src    string
	pos    int
	tokens []token
}

// lex cuts src into tokens; the last one is tokEnd.
func lex(src string) ([]token, error) {
	l := &lexer{src: src}
	for {
		l.pos += len(l.rest()) - len(strings.TrimLeft(l.rest(), " \t\r\n"))
		if l.pos == len(src) {
			return append(l.tokens, token{tokEnd, l.pos, ""}), nil
		}
		if err := l.next(); err != nil {
			return nil, err
		}
	}
}

func (l *lexer) rest() string { return l.src[l.pos:] }

func (l *lexer) add(kind tokenKind, text string, width int) {
	l.tokens = append(l.tokens, token{kind, l.pos, text})
	l.pos += width
}

func (l *lexer) next() error {
	rest := l.rest()
	c := rest[0]
	switch {
	case c == '\'' || c == '"':
		return l.quoted(rest)
	case c == 'r' && len(rest) > 1 && (rest[1] == '\'' || rest[1] == '"'):
		return l.raw(rest)
	case c == '`':
		return l.backquoted(rest)
	case isDigit(c) || c == '.' && len(rest) > 1 && isDigit(rest[1]):
		return l.number(rest)
	}
	if n := pathLength(rest); n > 0 {
		l.add(tokName, rest[:n], n)
		return nil
	}
	return l.operator(rest)
}

// operators holds longer operators before their prefixes.
var operators = []string{
	"||", "&&", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "/", "%", "(", ")", "[", "]", ",",
}

func (l *lexer) operator(rest string) error {
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			l.add(tokOp, op, len(op))
			return nil
		}
	}
	switch rest[0] {
	case '=':
		return errorAt(l.src, l.pos, "= is no operator: write == to compare")
	case '&':
		return errorAt(l.src, l.pos, "& is no operator: write and, or &&")
	case '|':
		return errorAt(l.src, l.pos, "| is no operator: write or, or ||")
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return errorAt(l.src, l.pos, "character %q has no meaning here: valid are names, numbers, 'text', `column`, and %s",
		r, strings.Join(operators, " "))
}

// pathLength is the length of the column path (or keyword) that s begins with.
func pathLength(s string) int {
	n := nameLength(s)
	if n == 0 || keywords[s[:n]] {
		return n
	}
	for {
		rest := s[n:]
		switch {
		case strings.HasPrefix(rest, "[]"):
			n += 2
		case len(rest) > 1 && rest[0] == '.' && segmentLength(rest[1:]) > 0:
			n += 1 + segmentLength(rest[1:])
		default:
			return n
		}
	}
}

// nameLength is segmentLength, but a name does not begin with a digit.
func nameLength(s string) int {
	if r, _ := utf8.DecodeRuneInString(s); unicode.IsDigit(r) {
		return 0
	}
	return segmentLength(s)
}

func segmentLength(s string) int {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return i
		}
	}
	return len(s)
}

func (l *lexer) backquoted(rest string) error {
	end := strings.IndexByte(rest[1:], '`')
	switch {
	case end < 0:
		return errorAt(l.src, l.pos, "the column name is not closed: add a backquote")
	case end == 0:
		return errorAt(l.src, l.pos, "the column name is empty")
	}
	l.add(tokColumn, rest[1:1+end], end+2)
	return nil
}

func (l *lexer) raw(rest string) error {
	end := strings.IndexByte(rest[2:], rest[1])
	if end < 0 {
		return errorAt(l.src, l.pos, "the string is not closed: add a %c", rest[1])
	}
	l.add(tokString, rest[2:2+end], end+3)
	return nil
}

func (l *lexer) quoted(rest string) error {
	var value strings.Builder
	for i := 1; i < len(rest); {
		switch c := rest[i]; c {
		case rest[0]:
			l.add(tokString, value.String(), i+1)
			return nil
		case '\\':
			r, width := unescape(rest[i+1:])
			if width == 0 {
				return errorAt(l.src, l.pos+i, `the escape is unknown: valid are \n \t \r \\ \' \" \uXXXX; write \\ for a backslash, or r'...' for a regular expression`)
			}
			value.WriteRune(r)
			i += 1 + width
		default:
			value.WriteByte(c)
			i++
		}
	}
	return errorAt(l.src, l.pos, "the string is not closed: add a %c", rest[0])
}

// unescape reads what follows a backslash: the character meant and the bytes
// used, 0 if there is no such escape.
func unescape(s string) (r rune, width int) {
	if s == "" {
		return 0, 0
	}
	switch s[0] {
	case 'n':
		return '\n', 1
	case 't':
		return '\t', 1
	case 'r':
		return '\r', 1
	case '\\', '\'', '"':
		return rune(s[0]), 1
	case 'u':
		if len(s) < 5 {
			return 0, 0
		}
		code, err := strconv.ParseUint(s[1:5], 16, 16)
		if err != nil || !utf8.ValidRune(rune(code)) {
			return 0, 0
		}
		return rune(code), 5
	}
	return 0, 0
}

func (l *lexer) number(s string) error {
	n := digits(s)
	if strings.HasPrefix(s[n:], ".") && digits(s[n+1:]) > 0 {
		n += 1 + digits(s[n+1:])
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		sign := n + 1
		if sign < len(s) && (s[sign] == '+' || s[sign] == '-') {
			sign++
		}
		if d := digits(s[sign:]); d > 0 {
			n = sign + d
		}
	}
	if n < len(s) && (s[n] == '.' || segmentLength(s[n:]) > 0) {
		return errorAt(l.src, l.pos, "not a number: valid are 12, 1.5, 2e-3; a column name that begins with a digit needs backquotes")
	}
	l.add(tokNumber, s[:n], n)
	return nil
}

func digits(s string) int {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return i
		}
	}
	return len(s)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
