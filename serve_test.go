package millrace_test

import (
	"context"
	"errors"
	"testing"

	"github.com/millrace-data/millrace"
	"github.com/millrace-data/millrace/jobspec"
)

// TestServeOptions: what no service can be started with is a UserError that says what is valid.
func TestServeOptions(t *testing.T) {
	job, findings := jobspec.Parse("job.yaml", []byte("name: a\nsources: [{name: words, files: words.txt, long: {max: 64}}]\nbatch: {sequence_length: 128, sequences: 2}\ntopology: {dp: 1}\n"), "")
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	never := func(context.Context, string) error { return errors.New("it was started") }
	for want, row := range map[string]struct {
		job     *jobspec.Job
		options millrace.Options
		use     func(context.Context, string) error
	}{
		"there is no job to serve: pass one that Load returned":                     {nil, millrace.Options{}, never},
		"nothing uses the service: pass a function that is called with its address": {job, millrace.Options{}, nil},
		"Options.Loaders is 5000, valid is 4096 or less":                            {job, millrace.Options{Loaders: 5000}, never},
		"Options.Loaders is -1, valid is 0 or more":                                 {job, millrace.Options{Loaders: -1}, never},
		"Options.Constructors is -1, valid is 0 or more":                            {job, millrace.Options{Constructors: -1}, never},
		"Options.Workers is -1, valid is 0 or more":                                 {job, millrace.Options{Workers: -1}, never},
		"Options.Prefetch is -1, valid is 0 or more":                                {job, millrace.Options{Prefetch: -1}, never},
		"Options.Prefetch is 1048577, valid is 1048576 or less":                     {job, millrace.Options{Prefetch: 1<<20 + 1}, never},
	} {
		err := millrace.Serve(t.Context(), row.job, row.options, row.use)
		if _, ok := errors.AsType[*millrace.UserError](err); !ok || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
