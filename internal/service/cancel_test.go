package service_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/trainer"
)

// TestCancelledLeaveNoTrace: a job with changes that were cancelled is the one without
// them, and another one than that with them.
func TestCancelledLeaveNoTrace(t *testing.T) {
	dir := writeMore(t)
	r := changed[9]
	got := solve(t, dir, r)
	var left strings.Builder
	gone, err := change.Cancelled(r.changesOf(t))
	if err != nil || r.name != "cancelled" {
		t.Fatal(r.name, err)
	}
	for i, c := range r.changesOf(t) {
		if !gone[i] {
			fmt.Fprintln(&left, c)
		}
	}
	r.name, r.changes = "without the cancelled", left.String()
	want := solve(t, dir, r)
	if !slices.Equal(got.digests, want.digests) || slices.Equal(got.digests, solve(t, dir, changed[8]).digests) {
		t.Errorf("cancelled changes make a difference, or none did before: %x, want %x", got.digests, want.digests)
	}
}

// TestCancelOutlivesTokens: a change that is pending in a token and was cancelled later
// is not brought back by it, where the journal is known.
func TestCancelOutlivesTokens(t *testing.T) {
	dir := writeMore(t)
	r := changed[0]
	r.changes = ""
	s := setting{loaders: 1, constructors: 1, log: true, resources: resources{prefetch: 2}}
	opts := s.options(t, dir, r)
	want := map[int64][32]byte{}
	if _, _, err := reference.ReadWith(t.Context(), store.Local{}, program, opts.Job, nil, 20, func(s *reference.Step) error {
		want[s.Step] = s.Digest
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var token []byte
	var journal []change.Change
	run := func(opts service.Options, token []byte, steps int64, onStep func(ctx context.Context, address string, step int64)) (last []byte, differs bool) {
		t.Helper()
		err := service.Run(t.Context(), opts, func(ctx context.Context, address string) error {
			res, err := trainer.Run(ctx, trainer.Options{Address: address, Job: opts.Job, Token: token, Steps: steps, OnStep: func(s trainer.Step) {
				differs = differs || s.Digest != want[s.Step]
				if onStep != nil {
					onStep(ctx, address, s.Step)
				}
			}})
			if err != nil {
				return err
			}
			last = res.Token
			journal, err = journalOf(ctx, address)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return last, differs
	}
	const pause = `{"step":12,"pause":"chat"}`
	token, _ = run(opts, nil, 3, func(ctx context.Context, address string, step int64) {
		if step > 0 {
			return
		}
		if _, err := ask(ctx, address, pause); err != nil {
			t.Error(err)
		}
	})
	if _, differs := run(opts, token, 3, func(ctx context.Context, address string, step int64) {
		if step > 3 {
			return
		}
		if _, err := ask(ctx, address, `{"cancel":`+pause+`}`); err != nil {
			t.Error(err)
		}
	}); differs {
		t.Error("it differs before its step")
	}
	bare := opts
	bare.LogDir = ""
	if _, differs := run(bare, token, 17, nil); !differs {
		t.Error("the token does not know of the change: nothing is shown")
	}
	if _, differs := run(opts, token, 17, nil); differs {
		t.Error("with the log, the token brings the cancelled change back")
	}
	bare.Changes = journal
	if _, differs := run(bare, token, 17, nil); differs {
		t.Error("with the journal, the token brings the cancelled change back")
	}
}

// cancel takes back the change that was made last, if it is still to come.
func (a *asker) cancel(ctx context.Context) {
	changes, err := journalOf(ctx, a.address)
	if err != nil {
		a.bug = err
		return
	}
	last := changes[0]
	for _, c := range changes { // the one with the highest step may be it
		if c.Cancel == nil && c.Add == nil && c.Step > last.Step {
			last = c
		}
	}
	_, err = ask(ctx, a.address, change.Change{Cancel: &last, Step: last.Step}.String())
	switch {
	case err == nil:
		a.made++
	case fault.ClassOf(err) != fault.User:
		a.bug = err
	}
}
