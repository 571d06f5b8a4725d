package service_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/planner/scaling"
	"github.com/millrace-data/millrace/internal/profile"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sizing"
	"github.com/millrace-data/millrace/internal/trainer"
	"github.com/millrace-data/millrace/jobspec"
)

// TestLoadersAreScaled: while ranks take steps, loaders join for the sources that the mix makes dear, read blocks, drain and
// leave, in this process; and every step is that of the reference.
func TestLoadersAreScaled(t *testing.T) {
	t.Parallel()
	dir, r := writeSources(t), recipes[0]
	r.name, r.steps = "scaled", 60 // answers are kept by name
	want := solve(t, dir, r)
	job := parse(t, dir, r.text(resources{prefetch: 2, window: 1}))
	logs := t.TempDir()
	dear(t, job, logs)
	opts := service.Options{
		Job: job, Loaders: 2, Workers: 1, Registry: names, Functions: open, LogDir: logs,
		Scale: churning(2),
	}
	most, did, left := 0, "", false
	seen := func() bool {
		return most > 2 && left && strings.Contains(did, " more, for") && strings.Contains(did, " drain")
	}
	err := service.Run(t.Context(), opts, func(ctx context.Context, address string) error {
		res, err := trainer.Run(ctx, trainer.Options{Address: address, Job: job, Steps: r.steps, OnStep: func(s trainer.Step) {
			if s.Digest != want.digests[s.Step+1] {
				t.Errorf("digest step=%d %x, want %x", s.Step+1, s.Digest, want.digests[s.Step+1])
			}
			for begin := time.Now(); !seen() && time.Since(begin) < scaleTime; time.Sleep(5 * time.Millisecond) {
				now, err := statusOf(ctx, address)
				if err != nil {
					t.Error(err)
					return
				}
				left = left || len(now.Loaders) < most
				most = max(most, len(now.Loaders))
				did += fmt.Sprintln(now.Scaling)
			}
		}})
		if err == nil && res.Next != want.steps() {
			t.Errorf("%d steps, want %d", res.Next, want.steps())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !seen() {
		t.Errorf("%d loaders at most, and then fewer: %v; the scaler: %s", most, left, did)
	}
}

// scaleTime is how long each step leaves loaders to join and leave, until both were seen: a loaded machine takes seconds
// for what an idle one does in milliseconds.
const scaleTime = time.Second

// churning is a scaler that never has enough, nor too few.
func churning(loaders int) scaling.Options {
	return scaling.Options{Every: 5 * time.Millisecond, Scaling: sizing.Scaling{Most: loaders + 2, Up: 1e-9, Down: 1e12, Intervals: 1, Idle: 1, CoolDown: 1}}
}

// dear has an earlier life of a job learn that a token takes a second.
func dear(t testing.TB, job *jobspec.Job, logs string) {
	t.Helper()
	p := &profile.Profile{Job: job.Name}
	for i := range job.Sources {
		s := &job.Sources[i]
		p.Add(profile.Source{Name: s.Name, Recipe: profile.RecipeOf(s), Records: 10000, Samples: 10000, Tokens: 1e6, Seconds: 1e6})
	}
	if err := p.Write(logs); err != nil {
		t.Fatal(err)
	}
}
