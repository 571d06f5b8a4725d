package cost

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/fault"
)

type tokenKind uint8

const (
	tokEnd    tokenKind = iota
	tokName             // a keyword, function or field
	tokNumber           // text is the literal
	tokOp               // text is the operator or bracket
)

type token struct {
	kind tokenKind
	pos  int // byte offset in the expression
	text string
}

// place shows byte offset pos of src as a 1-based column in characters and by
// what stands there.
func place(src string, pos int) string {
	const most = 24 // enough to find it by eye, short enough for one line
	column, near := utf8.RuneCountInString(src[:pos])+1, []rune(src[pos:])
	switch {
	case len(near) > most:
		return fmt.Sprintf("column %d (%q…)", column, string(near[:most]))
	case len(near) > 0:
		return fmt.Sprintf("column %d (%q)", column, string(near))
	}
	return fmt.Sprintf("column %d (the end)", column)
}

// errorAt is an error of class fault.User at byte offset pos of src.
func errorAt(src string, pos int, format string, args ...any) error {
	return fault.Userf("cost, %s: %s", place(src, pos), fmt.Sprintf(format, args...))
}

// lex cuts src into tokens; the last one is tokEnd.
func lex(src string) ([]token, error) {
	var out []token
	for pos := 0; ; {
		pos += len(src[pos:]) - len(strings.TrimLeft(src[pos:], " \t\r\n"))
		if pos == len(src) {
			return append(out, token{tokEnd, pos, ""}), nil
		}
		kind, width, err := next(src, pos)
		if err != nil {
			return nil, err
		}
		out = append(out, token{kind, pos, src[pos : pos+width]})
		pos += width
	}
}

// next gives the kind and width of the token at pos.
func next(src string, pos int) (tokenKind, int, error) {
	rest := src[pos:]
	if n := numberLength(rest); n > 0 {
		if n < len(rest) && (rest[n] == '.' || nameLength("_"+rest[n:]) > 1) {
			return 0, 0, errorAt(src, pos, "not a number: valid are 12, 1.5, 2e-3; a product needs its *")
		}
		return tokNumber, n, nil
	}
	if n := nameLength(rest); n > 0 {
		return tokName, n, nil
	}
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			return tokOp, len(op), nil
		}
	}
	return 0, 0, errorAt(src, pos, "%s", noOperator(rest))
}

// operators holds longer operators before their prefixes.
var operators = []string{"||", "&&", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "/", "%", "(", ")", ","}

func noOperator(rest string) string {
	switch rest[0] {
	case '=':
		return "= is no operator: write == to compare"
	case '&':
		return "& is no operator: write and, or &&"
	case '|':
		return "| is no operator: write or, or ||"
	case '^':
		return "^ is no operator: write tokens * tokens for a square"
	case '?', ':':
		return rest[:1] + " is no operator: write if(condition, then, else)"
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return fmt.Sprintf("character %q has no meaning here: valid are names, numbers, and %s", r, strings.Join(operators, " "))
}

// nameLength is the length of the name that s begins with.
func nameLength(s string) int {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || !isDigit(c)) {
			return i
		}
	}
	return len(s)
}

// numberLength is the length of the number that s begins with.
func numberLength(s string) int {
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
	for i := range len(s) {
		if !isDigit(s[i]) {
			return i
		}
	}
	return len(s)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
