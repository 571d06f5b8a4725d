package sourceloader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// Check looks at source i as Open and the first block do, but only as far as its first
// record: it compiles the transforms, lists the files and reads one record of one of them.
// It finds what stops a job at its start, and not what other files and records hold. The
// findings name a field of the source. With functions that are Unasked, the record goes as
// far as the first call step.
func Check(ctx context.Context, st store.Store, job *jobspec.Job, i int, shared *transform.Shared) jobspec.Findings {
	spec := job.ResolvedSources()[i]
	chain, err := transform.Compile(spec, job.LongestSample(), shared)
	if step, ok := errors.AsType[*transform.StepError](err); ok {
		return failed(step.Field, step.Err.Error(), err)
	}
	if err != nil {
		return failed("transforms", err.Error(), err)
	}
	var found jobspec.Findings
	src, err := order.First(ctx, st, &spec, chain.Columns(), func(of format.Format, obj store.Object, rec *format.Record) error {
		found = misspelt(chain, rec)
		_, err := chain.Worker().Apply(format.WithFile(ctx, 0), rec, func(*transform.Sample) error { return nil })
		if errors.Is(err, errUnasked) || err != nil && transform.Skips(&spec, err) {
			return nil
		}
		return transform.Stops(&spec, inFile(obj.URI, of, rec, err))
	})
	if err != nil {
		return unread(chain, err)
	}
	for _, d := range doubts(src) {
		found = append(found, jobspec.Finding{Field: "files", Message: d.Message, Valid: d.Valid, Warning: true})
	}
	return found
}

// unread is the finding of an error of a source's first record: at the step that names a column which is not there, or
// else at its files.
func unread(chain *transform.Chain, err error) jobspec.Findings {
	column, ok := transform.AbsentColumn(err)
	message := err.Error()
	if missing, of := errors.AsType[*format.MissingColumn](err); of {
		column = slices.Index(chain.Columns(), missing.Name)
		if ok = column >= 0; ok {
			message += givenHint(missing, chain.Given(column))
		}
	}
	if wrong, of := errors.AsType[*format.WrongPath](err); of {
		column = slices.Index(chain.Columns(), wrong.Name)
		ok = column >= 0
	}
	switch {
	case !ok:
		return failed("files", message, err)
	case chain.Users()[column] == "":
		return failed("keep", message, err)
	}
	return failed(chain.Users()[column], message, err)
}

// givenHint adds to the error of a column the ones that are of no file, but of functions before the step that names it.
func givenHint(missing *format.MissingColumn, given []string) string {
	if len(given) == 0 {
		return ""
	}
	hint := "; functions before the step give " + format.ListNames(given)
	if near := didyoumean.Nearest(missing.Name, given); near != "" {
		hint += fmt.Sprintf(": did you mean %q?", near)
	}
	return hint
}

// misspelt warns of fields that a filter names and a record lacks, while it has one of about that name: the filter sees
// null, and may leave all records out without a word.
func misspelt(chain *transform.Chain, rec *format.Record) (found jobspec.Findings) {
	for i, user := range chain.Users() {
		if rec.Err != nil || !rec.Values[i].Absent || chain.Requires(i) || !strings.HasSuffix(user, ".filter") {
			continue
		}
		missing, has := chain.Lacks(rec, i)
		if didyoumean.Nearest(missing, has) != "" {
			message := fmt.Sprintf("the first record has no field %q%s", missing, transform.Hint(missing, has))
			found = append(found, jobspec.Finding{Field: user, Message: message, Valid: "correct the name, unless other records have the field", Warning: true})
		}
	}
	return found
}

func failed(field, message string, err error) jobspec.Findings {
	return jobspec.Findings{{Field: field, Message: message, Lost: fault.ClassOf(err) == fault.Lost}}
}

// errUnasked ends the way of a record through the steps of its source.
var errUnasked = errors.New("no model server is asked")

// unasked is a Caller in the place of one that would ask a model server.
type unasked struct{}

// Call implements transform.Caller.
func (unasked) Call(context.Context, *format.Batch) (*format.Batch, []int32, error) {
	return nil, nil, errUnasked
}

// Unasked opens functions as open does, and has call steps ask nobody: a record that Check or Probe puts through the steps
// of a source comes to the first of them, and no further.
func Unasked(open transform.Functions) transform.Functions {
	return func(seed uint64, src *jobspec.Source, step int) (*transform.Function, error) {
		f, err := open(seed, src, step)
		if _, asks := src.Transforms[step].(*jobspec.Call); !asks || err != nil {
			return f, err
		}
		own := *f
		own.Caller = unasked{}
		return &own, nil
	}
}

// inFile names the file in an error of a record, if the record's own does not, and says what its place is there.
func inFile(uri string, f format.Format, rec *format.Record, err error) error {
	if err == nil || rec.Err != nil { // the transforms do not know the file
		return err
	}
	return fault.As(fault.ClassOf(err), fmt.Errorf("%s: %w", uri, format.Placed(f, err)))
}

// doubts says what about the files of a source may not be meant.
func doubts(src *order.Source) []order.Doubt {
	n := len(src.LeftOut)
	if n == 0 {
		return src.Doubts
	}
	return append([]order.Doubt{{
		Message: fmt.Sprintf("%d of the files there are left out, because they are not %s, such as %s", n, src.Format.Name(), src.LeftOut[0].URI),
		Valid:   "name those that are meant, or take them out of the folder",
	}}, src.Doubts...)
}
