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
// findings name a field of the source.
func Check(ctx context.Context, st store.Store, job *jobspec.Job, i int, shared *transform.Shared) jobspec.Findings {
	spec := job.ResolvedSources()[i]
	chain, err := transform.Compile(spec, job.LongestSample(), shared)
	if step, ok := errors.AsType[*transform.StepError](err); ok {
		return jobspec.Findings{{Field: step.Field(), Message: step.Err.Error()}}
	}
	if err != nil {
		return jobspec.Findings{{Field: "transforms", Message: err.Error()}}
	}
	src, err := order.First(ctx, st, &spec, chain.Columns(), func(of format.Format, obj store.Object, rec *format.Record) error {
		_, err := chain.Worker().Apply(format.WithFile(ctx, 0), rec, func(*transform.Sample) error { return nil })
		if err != nil && transform.Skips(&spec, err) {
			return nil
		}
		return inFile(obj.URI, of, rec, err)
	})
	if err != nil {
		field := "files"
		if column, ok := transform.AbsentColumn(err); ok && chain.Users()[column] != "" {
			field = chain.Users()[column] // the step that names it
		}
		return jobspec.Findings{{Field: field, Message: err.Error()}}
	}
	var found jobspec.Findings
	for _, d := range doubts(src) {
		found = append(found, jobspec.Finding{Field: "files", Message: d.Message, Valid: d.Valid, Warning: true})
	}
	return found
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
