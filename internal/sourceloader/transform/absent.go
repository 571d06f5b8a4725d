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

// ErrAbsent reports a record without a field of its text or tokens.
var ErrAbsent = errors.New("the record has no field")

// Users names, for each of Columns, the first step that reads it, as errors name it:
// "transforms[0].text"; "" for one that is only kept.
func (c *Chain) Users() []string { return slices.Clone(c.runs[0].users) }

// Requires reports whether a record without a column, by its place in Columns, is bad.
// For filters, images and kept columns an absent field is null, and for a template's
// {field?} it is empty.
func (c *Chain) Requires(column int) bool { return c.runs[0].requires[column] }

// absent returns the error of a record that lacks a required column.
func absent(rec *format.Record, column int, path, remedy string) error {
	missing, has := Lacks(rec, column, path)
	err := fault.Userf("%w %q%s: correct the name, %s, or skip such records by bad_records.policy", ErrAbsent, clip(missing), Hint(missing, has), remedy)
	return &absence{err, column}
}

// absence is an ErrAbsent with its column.
type absence struct {
	error
	column int
}

func (a *absence) Unwrap() error { return a.error }

// mapped has an error of a run of steps name a column by its place in Columns.
func mapped(err error, reader []int) error {
	if a, is := errors.AsType[*absence](err); is {
		a.column = reader[a.column]
	}
	return err
}

// AbsentColumn returns the place in Columns of the column of an ErrAbsent.
func AbsentColumn(err error) (column int, ok bool) {
	if a, is := errors.AsType[*absence](err); is && a.column >= 0 {
		return a.column, true
	}
	return 0, false
}

// Lacks returns the part of an absent column's path that is missing in a record, and
// the names present in its place.
func Lacks(rec *format.Record, column int, path string) (missing string, has []string) {
	if rec.Lacks != nil {
		if missing, has = rec.Lacks(column); missing != "" {
			return missing, has
		}
	}
	return path, has
}

// Limits of a message: the names listed, and the length of each.
const (
	maxHas  = 20
	maxName = 60
)

// Hint continues a message after the name of a missing field: the nearest name, and
// the names present.
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
		return strings.ToValidUTF8(name, "\uFFFD") // extensions of a tar's members may be anything
	}
	return strings.ToValidUTF8(name[:maxName], "") + "..."
}
