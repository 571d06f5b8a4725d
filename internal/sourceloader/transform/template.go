package transform

import "github.com/millrace-data/millrace/internal/fieldpath"

// currentText is the name of the current text in templates and filters, and of
// the column it starts as.
const currentText = "text"

// template is a compiled text step: literals with fields between.
type template struct {
	parts []part
}

// part is a literal and then, if path is set, a field.
type part struct {
	literal  []byte
	path     string
	optional bool // records may lack the field
	column   int  // place of the field in Record.Values, or fromText
}

// fromText is the column of a part that takes the current text.
const fromText = -1

// parseTemplate cuts a template into parts; the columns of fields are not set yet.
func parseTemplate(src string) (template, error) {
	parts, err := fieldpath.ParseTemplate(src)
	if err != nil {
		return template{}, err
	}
	var t template
	for _, p := range parts {
		t.parts = append(t.parts, part{literal: []byte(p.Literal), path: p.Path, optional: p.Optional, column: fromText})
	}
	return t, nil
}

// single reports whether the template is one field and nothing else, whose
// text needs no copy.
func (t template) single() bool {
	return len(t.parts) == 1 && len(t.parts[0].literal) == 0
}
