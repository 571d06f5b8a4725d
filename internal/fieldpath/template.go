package fieldpath

import (
	"fmt"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
)

// Part is a literal and then, if Path is set, a field. Path is in the form that
// Parse reads.
type Part struct {
	Literal  string
	Path     string
	Optional bool // records may lack the field: it ends in a question mark
}

// ParseTemplate cuts a text with fields in braces into parts. A doubled brace is the
// brace itself; inside braces a backslash escapes the next character. At least
// one field is named. Errors are of class fault.User.
func ParseTemplate(src string) ([]Part, error) {
	var parts []Part
	var literal strings.Builder
	for i := 0; i < len(src); i++ {
		c := src[i]
		switch {
		case c != '{' && c != '}':
			literal.WriteByte(c)
		case i+1 < len(src) && src[i+1] == c:
			literal.WriteByte(c)
			i++
		case c == '}':
			return nil, fault.Userf("template %q, byte %d: } without {; a literal brace is doubled: }}", src, i)
		default:
			field, err := fieldIn(src, i)
			if err != nil {
				return nil, err
			}
			path, may := optional(field)
			parts = append(parts, Part{literal.String(), path, may})
			literal.Reset()
			i += len(field) + 1
		}
	}
	if len(parts) == 0 {
		return nil, fault.Userf("template %q names no field, so that every record would have the same text; write {%s} for a field", src, exampleField(src))
	}
	if literal.Len() > 0 {
		parts = append(parts, Part{Literal: literal.String()})
	}
	return parts, nil
}

// optional splits a template's field into its path and whether records may lack it:
// whether it ends in a question mark without a backslash before it.
func optional(field string) (path string, may bool) {
	path, may = strings.CutSuffix(field, "?")
	slashes := len(path) - len(strings.TrimRight(path, `\`))
	if may && slashes%2 == 0 {
		return path, true
	}
	return field, false
}

// fieldIn returns the text between the brace at src[open] and its closing one: a
// path, and a question mark if records may lack the field.
func fieldIn(src string, open int) (string, error) {
	end := open + 1
	for end < len(src) && src[end] != '{' && src[end] != '}' {
		if src[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(src) || src[end] == '{' {
		return "", fault.Userf("template %q, byte %d: { is not closed; a field is {name}, a literal brace is doubled: {{", src, open)
	}
	field := src[open+1 : end]
	path, _ := optional(field)
	if path == "" || strings.TrimSpace(path) != path {
		return "", fault.Userf("template %q, byte %d: {%s} names no field; valid are {title}, {meta.title}, {messages[].content}, and {title?} for one that records may lack", src, open, path)
	}
	if _, err := Parse(path); err != nil {
		return "", fmt.Errorf("template %q, byte %d: %w", src, open, err)
	}
	return field, nil
}

// exampleField guesses the intended field of a template without fields.
func exampleField(src string) string {
	if src == "" || strings.ContainsAny(src, "{} \t\r\n") {
		return "text"
	}
	return src
}
