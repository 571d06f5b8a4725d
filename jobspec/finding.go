package jobspec

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
)

// Finding is one thing that is wrong, or doubtful, in a job spec.
type Finding struct {
	File    string // as given to Parse or Load
	Line    int    // from 1; 0 if the finding has no place in the file
	Column  int    // from 1, in characters
	Field   string // e.g. sources[2].transforms[0].tokenize.encoding; "" for the whole file
	Message string // what is wrong
	Valid   string // what would be valid
	Warning bool   // the job can run all the same
	Lost    bool   // what could not be asked is away, such as a store: nothing is known to be wrong with the spec
}

// String returns "file:line: field: what is wrong, what would be valid".
func (f Finding) String() string {
	var b strings.Builder
	if f.File != "" {
		b.WriteString(f.File)
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d", f.Line)
		}
		b.WriteString(": ")
	}
	if f.Warning {
		b.WriteString("warning: ")
	}
	if f.Field != "" {
		b.WriteString(f.Field + ": ")
	}
	b.WriteString(f.Message)
	if f.Valid != "" {
		b.WriteString(", " + f.Valid)
	}
	return b.String()
}

// Findings are the findings of one spec, sorted by line.
type Findings []Finding

// Error returns the findings, one per line. Findings is an error so that
// errors.AsType finds the list inside what Load returns.
func (fs Findings) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Err returns nil if there are only warnings, else an error of class fault.User
// that wraps all findings, or of class fault.Lost where nothing else is wrong.
func (fs Findings) Err() error {
	lost := false
	for _, f := range fs {
		switch {
		case !f.Warning && !f.Lost:
			return fault.As(fault.User, fs)
		case !f.Warning:
			lost = true
		}
	}
	if lost {
		return fault.As(fault.Lost, fs)
	}
	return nil
}

// position is a place in the file, from 1.
type position struct{ line, column int }

// report collects findings and remembers which fields are wrong, so that a
// rule between fields is not applied to one that already has a finding.
type report struct {
	file     string
	places   map[string]position // of every field that is written
	wrong    map[string]bool     // fields with an error
	tainted  map[string]bool     // those and everything above them
	findings Findings
	count    map[bool]int // of warnings (true) and errors, those left out as well
}

// maxFindings bounds the errors, and the warnings, that are kept for one file. A
// person fixes the first few; a file of another kind given by mistake would
// make as many as it has lines.
const maxFindings = 1000

func newReport(file string) *report {
	return &report{
		file:    file,
		places:  map[string]position{},
		wrong:   map[string]bool{},
		tainted: map[string]bool{},
		count:   map[bool]int{},
	}
}

// error records an error at a field. valid is what would be valid.
func (r *report) error(field, message, valid string) {
	r.errorAt(r.place(field), field, message, valid)
}

func (r *report) errorAt(at position, field, message, valid string) {
	r.taint(field)
	r.add(at, field, message, valid, false)
}

// taint marks a field as wrong without a finding.
func (r *report) taint(field string) {
	r.wrong[field] = true
	for f := field; f != ""; f = parentField(f) {
		r.tainted[f] = true
	}
}

func (r *report) warn(field, message, valid string) {
	r.add(r.place(field), field, message, valid, true)
}

func (r *report) add(at position, field, message, valid string, warning bool) {
	r.put(Finding{
		File: r.file, Line: at.line, Column: at.column,
		Field: field, Message: message, Valid: valid, Warning: warning,
	})
}

func (r *report) put(f Finding) {
	if r.count[f.Warning]++; r.count[f.Warning] <= maxFindings {
		r.findings = append(r.findings, f)
	}
}

// found records a finding of another package at a field.
func (r *report) found(field string, f Finding) {
	if !f.Warning {
		r.taint(field)
	}
	at := r.place(field)
	f.File, f.Line, f.Column, f.Field = r.file, at.line, at.column, field
	r.put(f)
}

// sorted returns the findings by line; the last one says how many are left out.
func (r *report) sorted() Findings {
	slices.SortStableFunc(r.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	more := max(0, r.count[true]-maxFindings) + max(0, r.count[false]-maxFindings)
	if more == 0 {
		return r.findings
	}
	last := r.findings[len(r.findings)-1]
	return append(r.findings, Finding{
		File: r.file, Line: last.Line, Column: last.Column, Warning: true,
		Message: fmt.Sprintf("%d more findings are left out", more), Valid: "fix those above first",
	})
}

// place returns where a field is written, or the nearest thing around it.
func (r *report) place(field string) position {
	for {
		if at, ok := r.places[field]; ok || field == "" {
			return at
		}
		field = parentField(field)
	}
}

// given reports whether the field is written in the file.
func (r *report) given(field string) bool {
	_, ok := r.places[field]
	return ok
}

// sound reports whether nothing is wrong with the fields, with what they lie
// in, or with what lies in them.
func (r *report) sound(fields ...string) bool {
	for _, field := range fields {
		if r.tainted[field] {
			return false
		}
		for field != "" {
			field = parentField(field)
			if r.wrong[field] {
				return false
			}
		}
	}
	return true
}

// childField names a key of a map field: a.b, or a["b c"] if b is no plain word.
func childField(field, key string) string {
	switch {
	case !plainKey(key):
		return field + "[" + strconv.Quote(key) + "]"
	case field == "":
		return key
	default:
		return field + "." + key
	}
}

// itemField names an element of a list field.
func itemField(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

// parentField cuts the last part off a field's name. A quoted key may hold any
// character, but no quote without a backslash before it.
func parentField(field string) string {
	if strings.HasSuffix(field, `"]`) {
		return field[:max(0, strings.LastIndex(field[:len(field)-2], `["`))]
	}
	return field[:max(0, strings.LastIndexAny(field, ".["))]
}

func plainKey(key string) bool {
	for _, c := range key {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return key != ""
}
