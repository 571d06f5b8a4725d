package transform

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fieldpath"
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
	said := func(given []string) error {
		missing, has := lacks(rec, column, path, given)
		return fault.Userf("%w %q%s: correct the name, or %s", ErrAbsent, clip(missing), Hint(missing, has), remedy)
	}
	return &absence{said(nil), column, said}
}

// absence is an ErrAbsent with its column, and until it is settled what it says where functions gave columns.
type absence struct {
	error
	column int
	said   func(given []string) error
}

func (a *absence) Unwrap() error { return a.error }

// settled has an error of the run name a column by its place in Columns, and the columns that functions gave.
func (r *native) settled(err error) error {
	if a, is := errors.AsType[*absence](err); is && a.said != nil {
		if len(r.given) > 0 {
			a.error = a.said(r.given)
		}
		a.column, a.said = r.reader[a.column], nil
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

// Given are the columns that functions give before the first step that names a column, by its place in Columns.
func (c *Chain) Given(column int) []string { return c.runs[0].beside[column] }

// Lacks returns the part of an absent column's path that is missing in a record of the reader, by its place in
// Columns, and the names that the first step which names it finds in its place.
func (c *Chain) Lacks(rec *format.Record, column int) (missing string, has []string) {
	return lacks(rec, column, c.runs[0].columns[column], c.Given(column))
}

// lacks is Lacks for a record that has been given columns, too.
func lacks(rec *format.Record, column int, path string, given []string) (missing string, has []string) {
	if rec.Lacks != nil {
		missing, has = rec.Lacks(column)
	}
	if missing == "" {
		return path, nil
	}
	if steps, err := fieldpath.Parse(path); err == nil && steps[0].Key == missing {
		has = slices.Concat(has, given)
	}
	return missing, has
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
