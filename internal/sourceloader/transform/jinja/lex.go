package jinja

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// kind is the kind of a token.
type kind uint8

const (
	dataToken  kind = iota // text between tags
	beginBlock             // {%
	endBlock               // %}
	beginValue             // {{
	endValue               // }}
	nameToken
	textToken // a string
	intToken
	floatToken
	signToken // an operator or bracket
	endToken  // of the template
)

type token struct {
	kind kind
	text string
	line int
}

// lexer cuts a template into tokens as Jinja does with trim_blocks and lstrip_blocks set.
type lexer struct {
	src       string
	at        int
	line      int
	lineStart bool // what was taken last ended a line, or nothing was taken yet
	tokens    []token
}

func lex(src string) []token {
	src = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(src)
	src = strings.TrimSuffix(src, "\n")
	l := &lexer{src: src, line: 1, lineStart: true}
	for l.at < len(src) {
		l.next()
	}
	l.add(endToken, "")
	return l.tokens
}

func (l *lexer) add(k kind, text string) { l.tokens = append(l.tokens, token{k, text, l.line}) }

// take goes on by n bytes, which end a part of the template.
func (l *lexer) take(n int) {
	part := l.src[l.at : l.at+n]
	l.line += strings.Count(part, "\n")
	l.at += n
	if n > 0 {
		l.lineStart = part[n-1] == '\n'
	}
}

func (l *lexer) fail(format string, args ...any) {
	panic(&Error{Line: l.line, err: failf(format, args...)})
}

// next takes the text up to a tag, and the tag.
func (l *lexer) next() {
	rest := l.src[l.at:]
	open := len(rest)
	for i := 0; i+1 < len(rest); i++ {
		if rest[i] == '{' && (rest[i+1] == '%' || rest[i+1] == '{' || rest[i+1] == '#') {
			open = i
			break
		}
	}
	data := rest[:open]
	if open == len(rest) {
		l.data(data, open)
		return
	}
	tag, n := rest[open+1], open+2
	sign := byte(0)
	if n < len(rest) && (rest[n] == '-' || rest[n] == '+') {
		sign = rest[n]
		n++
	}
	switch {
	case sign == '-':
		data = strings.TrimRightFunc(data, isSpace)
	case sign == 0 && tag != '{':
		from := strings.LastIndexByte(data, '\n') + 1
		if (from > 0 || l.lineStart) && strings.TrimFunc(data[from:], isSpace) == "" {
			data = data[:from]
		}
	}
	l.data(data, n)
	switch tag {
	case '#':
		l.comment()
	case '{':
		l.add(beginValue, "")
		l.expression("}}", endValue)
	default:
		if !l.raw() {
			l.add(beginBlock, "")
			l.expression("%}", endBlock)
		}
	}
}

// data takes n bytes, of which text is the text.
func (l *lexer) data(text string, n int) {
	if text != "" {
		l.add(dataToken, text)
	}
	l.take(n)
}

// closing returns the length of the end of a tag at the beginning of s, with the space that
// it takes along; 0 if there is none.
func closing(s, end string) int {
	switch {
	case strings.HasPrefix(s, "-"+end):
		return len(s) - len(strings.TrimLeftFunc(s[1+len(end):], isSpace))
	case strings.HasPrefix(s, "+"+end) && end != "}}":
		return 1 + len(end)
	case !strings.HasPrefix(s, end):
		return 0
	case end != "}}" && strings.HasPrefix(s[len(end):], "\n"):
		return len(end) + 1
	}
	return len(end)
}

func (l *lexer) comment() {
	rest := l.src[l.at:]
	i := strings.Index(rest, "#}")
	if i < 0 {
		l.fail("a comment is not closed")
	}
	if i > 0 && (rest[i-1] == '-' || rest[i-1] == '+') {
		i--
	}
	l.take(i)
	l.take(closing(l.src[l.at:], "#}"))
}

// raw takes {% raw %} up to its end.
func (l *lexer) raw() bool {
	rest := l.src[l.at:]
	inner := strings.TrimLeftFunc(rest, isSpace)
	if !strings.HasPrefix(inner, "raw") {
		return false
	}
	inner = strings.TrimLeftFunc(inner[len("raw"):], isSpace)
	n := closing(inner, "%}")
	if n == 0 || inner[0] == '+' {
		return false
	}
	if inner[0] == '%' {
		n = len("%}") // the line break behind it stays
	}
	l.take(len(rest) - len(inner) + n)
	rest = l.src[l.at:]
	for i := 0; i < len(rest); i++ {
		body := rest[i:]
		if !strings.HasPrefix(body, "{%") {
			continue
		}
		tag := strings.TrimPrefix(strings.TrimPrefix(body[2:], "-"), "+")
		tag = strings.TrimLeftFunc(tag, isSpace)
		if !strings.HasPrefix(tag, "endraw") {
			continue
		}
		tag = strings.TrimLeftFunc(tag[len("endraw"):], isSpace)
		if n := closing(tag, "%}"); n > 0 {
			data := rest[:i]
			if body[2] == '-' {
				data = strings.TrimRightFunc(data, isSpace)
			} else if from := strings.LastIndexByte(data, '\n') + 1; body[2] != '+' && from > 0 && strings.TrimFunc(data[from:], isSpace) == "" {
				data = data[:from]
			}
			l.data(data, len(rest)-len(tag)+n)
			return true
		}
	}
	l.fail("raw is not closed by endraw")
	return true
}

// signs are operators and brackets, the longest first.
var signs = []string{"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<", ">", "=", ".", ":", "|", ",", ";", "(", ")", "[", "]", "{", "}"}

// expression takes what is in a tag, and its end.
func (l *lexer) expression(end string, ends kind) {
	depth := 0
	for {
		rest := l.src[l.at:]
		trimmed := strings.TrimLeftFunc(rest, isSpace)
		l.take(len(rest) - len(trimmed))
		if trimmed == "" {
			l.fail("a tag is not closed by %s", end)
		}
		if n := closing(trimmed, end); n > 0 && depth == 0 {
			l.add(ends, "")
			l.take(n)
			return
		}
		depth += l.item(trimmed)
		if depth < 0 {
			l.fail("a bracket closes that was not opened")
		}
	}
}

// item takes the next token of an expression; it says by how much brackets are deeper.
func (l *lexer) item(s string) int {
	switch c := s[0]; {
	case c == '"' || c == '\'':
		l.str(s)
		return 0
	case c >= '0' && c <= '9':
		l.number(s)
		return 0
	case isName(rune(c)) || c >= utf8.RuneSelf:
		n := strings.IndexFunc(s, func(r rune) bool { return !isName(r) })
		if n < 0 {
			n = len(s)
		}
		if n == 0 {
			l.fail("unexpected %q", s[:1])
		}
		l.add(nameToken, s[:n])
		l.take(n)
		return 0
	}
	for _, sign := range signs {
		if strings.HasPrefix(s, sign) {
			l.add(signToken, sign)
			l.take(len(sign))
			switch sign {
			case "(", "[", "{":
				return 1
			case ")", "]", "}":
				return -1
			}
			return 0
		}
	}
	l.fail("unexpected %q", s[:1])
	return 0
}

func (l *lexer) str(s string) {
	i := 1
	for i < len(s) && s[i] != s[0] {
		if s[i] == '\\' {
			i++
		}
		i++
	}
	if i >= len(s) {
		l.fail("a string is not closed")
	}
	l.add(textToken, l.unescape(s[1:i]))
	l.take(i + 1)
}

// unescape reads the escapes of a string as Python does.
func (l *lexer) unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[i]]
		switch c := s[i]; {
		case digits > 0:
			if i+digits >= len(s) {
				l.fail("the escape \\%c needs %d hex digits", c, digits)
			}
			r, err := strconv.ParseUint(s[i+1:i+1+digits], 16, 32)
			if err != nil || !utf8.ValidRune(rune(r)) {
				l.fail("the escape \\%s is not a character", s[i:i+1+digits])
			}
			b.WriteRune(rune(r))
			i += digits
		case c >= '0' && c <= '7':
			n := 1
			for n < 3 && i+n < len(s) && s[i+n] >= '0' && s[i+n] <= '7' {
				n++
			}
			r, _ := strconv.ParseUint(s[i:i+n], 8, 32)
			b.WriteRune(rune(r))
			i += n - 1
		case c == '\n':
		default:
			if k := strings.IndexByte(`\'"abfnrtv`, c); k >= 0 {
				b.WriteByte("\\'\"\a\b\f\n\r\t\v"[k])
			} else {
				b.WriteString(s[i-1 : i+1])
			}
		}
	}
	return b.String()
}

func (l *lexer) number(s string) {
	n, k := 0, intToken
	digits := func() {
		for n < len(s) && (s[n] >= '0' && s[n] <= '9' || s[n] == '_') {
			n++
		}
	}
	digits()
	if n+1 < len(s) && s[n] == '.' && s[n+1] >= '0' && s[n+1] <= '9' {
		k = floatToken
		n++
		digits()
	}
	if n+1 < len(s) && (s[n] == 'e' || s[n] == 'E') && (s[n+1] >= '0' && s[n+1] <= '9' || n+2 < len(s) && (s[n+1] == '-' || s[n+1] == '+')) {
		k = floatToken
		n += 2
		digits()
	}
	l.add(k, strings.ReplaceAll(s[:n], "_", ""))
	l.take(n)
}
