package transform

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// ErrAbsent is what is wrong with a record that lacks a field which the text, or the
// tokens, are made of.
var ErrAbsent = errors.New("the record has no field")

// Users names, for each of Columns, the first step that reads it, as errors name it:
// "transforms[0].text"; "" for one that is only kept.
func (c *Chain) Users() []string { return slices.Clone(c.users) }

// Requires says of a column, by its place in Columns, whether a record without it is a bad one.
// Filters, images and kept columns take what is absent for null, and a template's
// {field?} takes it for an empty text.
func (c *Chain) Requires(column int) bool { return c.requires[column] }

// absent is the error of a record that lacks a column which it must have.
func absent(rec *format.Record, column int, path, remedy string) error {
	missing, has := Lacks(rec, column, path)
	err := fault.Userf("%w %q%s: correct the name, %s, or skip such records by bad_records.policy", ErrAbsent, clip(missing), Hint(missing, has), remedy)
	return &absence{err, column}
}

// absence is an ErrAbsent with the column that it is about.
type absence struct {
	error
	column int
}

func (a *absence) Unwrap() error { return a.error }

// AbsentColumn returns the place of the column that an ErrAbsent is about.
func AbsentColumn(err error) (column int, ok bool) {
	if a, is := errors.AsType[*absence](err); is {
		return a.column, true
	}
	return 0, false
}

// Lacks says which part of the path of an absent column is missing in a record, and
// which names there are in its place.
func Lacks(rec *format.Record, column int, path string) (missing string, has []string) {
	if rec.Lacks != nil {
		if missing, has = rec.Lacks(column); missing != "" {
			return missing, has
		}
	}
	return path, has
}

// The names that a message lists, and how long each may be: it is read by a person.
const (
	maxHas  = 20
	maxName = 60
)

// Hint goes on after the name of a field that is missing: what was meant, and what
// there is.
func Hint(missing string, has []string) string {
	if len(has) == 0 {
		return ", as it has none there"
	}
	names := slices.Compact(slices.Sorted(slices.Values(has)))
	hint := ""
	if near := didyoumean.Nearest(missing, names); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", clip(near))
	}
	list := names[:min(len(names), maxHas)]
	for i := range list {
		list[i] = clip(list[i])
	}
	hint += " (its fields are " + strings.Join(list, ", ")
	if more := len(names) - len(list); more > 0 {
		hint += fmt.Sprintf(" and %d more", more)
	}
	return hint + ")"
}

func clip(name string) string {
	if len(name) <= maxName {
		return name
	}
	return strings.ToValidUTF8(name[:maxName], "") + "..."
}
