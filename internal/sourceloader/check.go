package sourceloader

import (
	"context"
	"errors"
	"fmt"

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
	src, err := order.First(ctx, st, &spec, chain.Columns(), func(of format.Format, obj store.Object, rec *format.Record) error {
		_, err := chain.Worker().Apply(format.WithFile(ctx, 0), rec, func(*transform.Sample) error { return nil })
		if errors.Is(err, errUnasked) || err != nil && transform.Skips(&spec, err) {
			return nil
		}
		return inFile(obj.URI, of, rec, err)
	})
	if err != nil {
		field := "files"
		if column, ok := transform.AbsentColumn(err); ok && chain.Users()[column] != "" {
			field = chain.Users()[column] // the step that names it
		}
		return failed(field, err.Error(), err)
	}
	var found jobspec.Findings
	for _, d := range doubts(src) {
		found = append(found, jobspec.Finding{Field: "files", Message: d.Message, Valid: d.Valid, Warning: true})
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
