package transform

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

// Skips reports whether a source leaves out a record with this error, instead of stopping
// the job. A record that is too long, or has lists that are, is left out only if the spec
// sets the limit: the limit then decides bytes, and is part of the job's identity.
func Skips(src *jobspec.Source, err error) bool {
	return src.BadRecords.Policy == "skip" && skippable(src, err)
}

// Stops is the error of a record that stops the job: it says so where the source's policy alone does that.
func Stops(src *jobspec.Source, err error) error {
	if src.BadRecords.Policy == "skip" || !skippable(src, err) {
		return err
	}
	return fmt.Errorf("%w; to leave such records out, set bad_records.policy: skip", err)
}

// skippable reports whether a policy may leave out a record with this error.
func skippable(src *jobspec.Source, err error) bool {
	if _, whole := errors.AsType[*callError](err); whole {
		return false
	}
	return fault.ClassOf(err) == fault.User &&
		(src.MaxRecord > 0 || !errors.Is(err, format.ErrTooLong)) &&
		(src.MaxElements > 0 || !errors.Is(err, format.ErrTooMany))
}

func maxText(src jobspec.Source) int { return int(cmp.Or(src.MaxRecord, format.DefaultMaxRecord)) }

// size returns the length of the template's text in bytes, before it is allocated;
// numbers and bools, which are short, do not count.
func (t template) size(w *Worker, rec *format.Record) (n int) {
	for i := range t.parts {
		p := &t.parts[i]
		n += len(p.literal)
		switch {
		case p.column != fromText:
			n += textSize(&rec.Values[p.column])
		case p.path != "":
			n += len(w.text)
		}
	}
	return n
}

func textSize(v *format.Value) (n int) {
	n = len(v.Bytes)
	for i := range v.List {
		n += textSize(&v.List[i]) + 1 // a line break
	}
	return n
}
