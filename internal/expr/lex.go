package expr

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// end and symbol are kinds of tokens beside those of nodes without operands.
const (
	end    Kind = 100 + iota
	symbol      // an operator, bracket or comma
)

type token struct {
	kind Kind
	pos  int
	text string
}

// is reports whether t is one of words, as a symbol or a name.
func (t token) is(words ...string) bool {
	return (t.kind == symbol || t.kind == Name) && slices.Contains(words, t.text)
}

type lexer struct {
	*Language
	src    string
	pos    int
	tokens []token
}

// lex cuts src into tokens; the last one is the end.
func (l *Language) lex(src string) ([]token, error) {
	x := &lexer{Language: l, src: src}
	for {
		x.pos += len(x.rest()) - len(strings.TrimLeft(x.rest(), " \t\r\n"))
		if x.pos == len(src) {
			return append(x.tokens, token{end, x.pos, ""}), nil
		}
		if err := x.next(); err != nil {
			return nil, err
		}
	}
}

func (x *lexer) rest() string { return x.src[x.pos:] }

func (x *lexer) add(kind Kind, text string, width int) error {
	x.tokens = append(x.tokens, token{kind, x.pos, text})
	x.pos += width
	return nil
}

func (x *lexer) fail(at int, format string, args ...any) error {
	return x.Errorf(x.src, x.pos+at, format, args...)
}

func (x *lexer) next() error {
	rest := x.rest()
	if n := NumberLength(rest); n > 0 {
		if n < len(rest) && (rest[n] == '.' || segmentLength(rest[n:]) > 0) {
			return x.fail(0, "not a number: valid are 12, 1.5, 2e-3; %s", x.Number)
		}
		return x.add(Number, rest[:n], n)
	}
	c := rest[0]
	switch {
	case x.Columns && (c == '\'' || c == '"'):
		return x.quoted(rest)
	case x.Columns && c == 'r' && len(rest) > 1 && (rest[1] == '\'' || rest[1] == '"'):
		return x.raw(rest)
	case x.Columns && c == '`':
		return x.backquoted(rest)
	}
	if n := x.nameLength(rest); n > 0 {
		return x.add(Name, rest[:n], n)
	}
	return x.symbol(rest)
}

// symbols holds longer operators before their prefixes; those of lists come last.
var symbols = []string{"||", "&&", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "/", "%", "(", ")", ",", "[", "]"}

func (l *Language) symbols() []string {
	if l.Columns {
		return symbols
	}
	return symbols[:len(symbols)-2]
}

func (x *lexer) symbol(rest string) error {
	for _, op := range x.symbols() {
		if strings.HasPrefix(rest, op) {
			return x.add(symbol, op, len(op))
		}
	}
	r, _ := utf8.DecodeRuneInString(rest)
	instead := map[string]string{"=": "== to compare", "&": "and, or &&", "|": "or, or ||"}[string(r)]
	if instead == "" {
		instead = x.Hints[string(r)]
	}
	if instead != "" {
		return x.fail(0, "%c is not an operator: write %s", r, instead)
	}
	names := "names, numbers"
	if x.Columns {
		names += ", 'text', `column`"
	}
	return x.fail(0, "character %q has no meaning here: valid are %s, and %s", r, names, strings.Join(x.symbols(), " "))
}

// nameLength is the length of the name or column path that s begins with.
func (l *Language) nameLength(s string) int {
	if r, _ := utf8.DecodeRuneInString(s); unicode.IsDigit(r) {
		return 0
	}
	n := segmentLength(s)
	if n == 0 || !l.Columns || l.isKeyword(s[:n]) {
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

func (l *Language) isKeyword(name string) bool {
	return l.isOperator(name) || slices.Contains(l.Reserved, name)
}

// isOperator reports whether a name is an operator.
func (l *Language) isOperator(name string) bool {
	return name == "and" || name == "or" || name == "not" || l.Columns && name == "in"
}

func segmentLength(s string) int {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return i
		}
	}
	return len(s)
}

func (x *lexer) backquoted(rest string) error {
	switch end := strings.IndexByte(rest[1:], '`'); end {
	case -1:
		return x.fail(0, "the column name is not closed: add a backquote")
	case 0:
		return x.fail(0, "the column name is empty")
	default:
		return x.add(Column, rest[1:1+end], end+2)
	}
}

func (x *lexer) raw(rest string) error {
	end := strings.IndexByte(rest[2:], rest[1])
	if end < 0 {
		return x.fail(0, "the string is not closed: add a %c", rest[1])
	}
	return x.add(String, rest[2:2+end], end+3)
}

func (x *lexer) quoted(rest string) error {
	var value strings.Builder
	for i := 1; i < len(rest); {
		switch c := rest[i]; c {
		case rest[0]:
			return x.add(String, value.String(), i+1)
		case '\\':
			r, width := unescape(rest[i+1:])
			if width == 0 {
				return x.fail(i, `unknown escape: valid are \n \t \r \\ \' \" \uXXXX; write \\ for a backslash, or r'...' for a regular expression`)
			}
			value.WriteRune(r)
			i += 1 + width
		default:
			value.WriteByte(c)
			i++
		}
	}
	return x.fail(0, "the string is not closed: add a %c", rest[0])
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

// NumberLength is the length of the number, such as 12, 1.5 or 2e-3, that s begins with.
func NumberLength(s string) int {
	n := digits(s)
	if strings.HasPrefix(s[n:], ".") && digits(s[n+1:]) > 0 {
		n += 1 + digits(s[n+1:])
	}
	if 0 < n && n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		sign := n + 1
		if sign < len(s) && (s[sign] == '+' || s[sign] == '-') {
			sign++
		}
		if d := digits(s[sign:]); d > 0 {
			n = sign + d
		}
	}
	return n
}

func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}
