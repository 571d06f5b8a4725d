package transform

import (
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
)

// currentText is the name of the current text in templates and filters, and of
// the column it starts as.
const currentText = "text"

// template is a compiled text step: literals with fields between.
type template struct {
	parts []part
}

// part is a literal and then, if path is set, a field.
type part struct {
	literal []byte
	path    string
	column  int // place of the field in Record.Values, or fromText
}

// fromText is the column of a part that takes the current text.
const fromText = -1

// parseTemplate cuts a template into parts; their columns are not set yet.
func parseTemplate(src string) (template, error) {
	var t template
	var literal []byte
	fields := 0
	for i := 0; i < len(src); {
		c := src[i]
		doubled := i+1 < len(src) && src[i+1] == c
		switch {
		case (c == '{' || c == '}') && doubled:
			literal = append(literal, c)
			i += 2
		case c == '}':
			return t, fault.Userf("template %q, byte %d: } without {; a literal brace is doubled: }}", src, i)
		case c == '{':
			end := strings.IndexAny(src[i+1:], "{}")
			if end < 0 || src[i+1+end] == '{' {
				return t, fault.Userf("template %q, byte %d: { is not closed; a field is {name}, a literal brace is doubled: {{", src, i)
			}
			path := src[i+1 : i+1+end]
			if path == "" || strings.TrimSpace(path) != path {
				return t, fault.Userf("template %q, byte %d: {%s} names no field; valid are {title}, {meta.title}, {messages[].content}", src, i, path)
			}
			t.parts = append(t.parts, part{literal: literal, path: path})
			literal, fields = nil, fields+1
			i += end + 2
		default:
			literal = append(literal, c)
			i++
		}
	}
	if fields == 0 {
		return t, fault.Userf("template %q names no field, so that every record would have the same text; write {%s} for a field", src, exampleField(src))
	}
	if len(literal) > 0 {
		t.parts = append(t.parts, part{literal: literal, column: fromText})
	}
	return t, nil
}

// exampleField is what the writer of a template without fields meant.
func exampleField(src string) string {
	if src == "" || strings.ContainsAny(src, "{} \t\r\n") {
		return currentText
	}
	return src
}

// single reports whether the template is one field and nothing else, whose
// text needs no copy.
func (t template) single() bool {
	return len(t.parts) == 1 && len(t.parts[0].literal) == 0
}
