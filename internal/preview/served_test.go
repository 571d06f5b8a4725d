package preview_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/trainer"
	"github.com/millrace-data/millrace/jobspec"
)

// onDisk writes the sources to a folder, where a service finds them.
func onDisk(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	write(func(name string, data []byte) {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)); err != nil {
			t.Fatal(err)
		}
	})
	return dir
}

// TestServed runs a service with a log past a key frame, and holds the plans,
// and what a token and a key frame lead to, against a plan from the start.
func TestServed(t *testing.T) {
	r := recipe{spec: sources + stages + `
batch: {sequence_length: 512, sequences: 2}
topology: {dp: 2}
resources: {prefetch: 16}
`, changes: `
{"step":3,"ban":{"source":"chat","file":"part-1.jsonl","row":0}}
{"step":5,"weights":{"chat":0.9,"books":0.1}}
{"step":6,"add":{"source":{"name":"late","files":"text/1*.txt"},"weight":0.3}}
{"step":290,"weights":{"late":0.9,"chat":0.1}}
`}
	dir := onDisk(t)
	log := filepath.Join(dir, "log")
	job, findings := jobspec.Parse("job.yaml", []byte(r.spec), dir)
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	const steps = 560 // a key frame comes after 512 at the latest
	var token []byte
	err := service.Run(t.Context(), service.Options{Job: job, LogDir: log, Changes: r.made(t)}, func(ctx context.Context, address string) error {
		_, err := trainer.Run(ctx, trainer.Options{Address: address, Job: job, Steps: steps, Changes: r.made(t), StateEvery: 280, OnState: func(step int64, state []byte) {
			if step == 280 {
				token = state
			}
		}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	open := func(opts preview.Options) *preview.Job {
		opts.Job, opts.Store = job, store.Local{}
		j, err := preview.Open(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	want := digests(t, open(preview.Options{Changes: r.made(t)}), steps)
	if logged := logged(t, log, job); !slices.Equal(logged[:steps], want) {
		t.Error("the plans that the service logged are others than those planned offline")
	}
	for name, opts := range map[string]preview.Options{
		"log": {LogDir: log, From: 555}, "early log": {LogDir: log, From: 10}, "token": {Token: token}, "token and changes": {Token: token, Changes: r.made(t)},
	} {
		j := open(opts)
		from := j.Start()
		if late := from > 0; late != (name != "early log") {
			t.Errorf("%s: the plan begins at step %d", name, from)
		}
		if got := digests(t, j, steps-from); !slices.Equal(got, want[from:]) {
			t.Errorf("%s: plans from step %d are others than those from the start", name, from)
		}
	}
	explainBoth(t, open, r, log, token)
}

// explainBoth explains a late step from the start and from where a log and a
// token lead, where samples are carried over from blocks that were not read yet.
func explainBoth(t *testing.T, open func(preview.Options) *preview.Job, r recipe, log string, token []byte) {
	t.Helper()
	q := preview.Query{Step: 280, Microbatch: -1}
	whole, err := open(preview.Options{Changes: r.made(t)}).Explain(t.Context(), q, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, opts := range []preview.Options{{LogDir: log, From: 280}, {Token: token}} {
		x, err := open(opts).Explain(t.Context(), q, nil)
		if err != nil || fmt.Sprint(x.Samples) != fmt.Sprint(whole.Samples) || x.Plan != whole.Plan {
			t.Errorf("step 280 from a later start: %v, %d documents, want %d", err, len(x.Samples), len(whole.Samples))
		}
	}
	_, err = open(preview.Options{Token: token}).Explain(t.Context(), preview.Query{Step: 3, Microbatch: -1}, nil)
	if fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), "where the plan begins") {
		t.Errorf("a step before the token: %v", err)
	}
}

// logged are the digests of the plans in a log.
func logged(t *testing.T, dir string, job *jobspec.Job) (all [][32]byte) {
	t.Helper()
	j, err := preview.Open(t.Context(), preview.Options{Job: job})
	if err != nil {
		t.Fatal(err)
	}
	log, err := checkpoint.Open(dir, checkpoint.Options{Identity: j.Root()})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	last, _ := log.Last()
	if err := log.Records(0, last+1, func(_ int64, data []byte) error {
		r, err := token.DecodeRecord(data)
		if err == nil {
			all = append(all, r.Plan)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}
