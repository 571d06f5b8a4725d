package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace-data/millrace/internal/planner/scaling"
	"github.com/millrace-data/millrace/internal/profile"
	"github.com/millrace-data/millrace/internal/sizing"
)

// shiftingFlags are those of the scenarios shifting and layouts.
type shiftingFlags struct {
	steps, most, peak, layouts, layoutSteps int
	pace, every, wait                       time.Duration
}

func (f *shiftingFlags) register(flags *flag.FlagSet) {
	flags.IntVar(&f.steps, "shift-steps", 128, "shifting: steps of a run at the pace")
	flags.DurationVar(&f.pace, "shift-pace", 250*time.Millisecond, "shifting: what a paced trainer takes for a step")
	flags.DurationVar(&f.wait, "shift-wait", 150*time.Millisecond, "shifting: what the object store takes for an answer")
	flags.DurationVar(&f.every, "shift-every", 500*time.Millisecond, "shifting: interval of the scaler; less than a service's 5s, as the mix shifts within a minute")
	flags.IntVar(&f.peak, "shift-peak", 6, "shifting: loaders that suffice all the time")
	flags.IntVar(&f.most, "shift-most", 8, "shifting: most loaders that the scaler may have")
	flags.IntVar(&f.layouts, "shift-layouts", len(handMade), "layouts: hand-made ones to compare with")
	flags.IntVar(&f.layoutSteps, "shift-layout-steps", 32, "layouts: steps of a run of one")
}

// shiftingFirst are the loaders, of a worker each, that fixed and scaled services begin with: they suffice in the mean.
const shiftingFirst = 2

// shifting is the scenario while it runs.
type shifting struct {
	cfg      *config
	opts     shiftingFlags
	kinds    []shiftingKind
	origin   string // of what they hold
	store    *objectStore
	long     *shiftingJob // at the pace
	short    *shiftingJob // as fast as steps come
	profile  *profile.Profile
	outcomes []*shiftingOutcome // of the last run, for the plot
}

// benchShifting has the mix of 40 sources of unlike cost, in an object store far away, ramp and jump under a paced trainer:
// fixed loaders beside scaled ones. Every step of every run is compared with the reference reader.
func benchShifting(ctx context.Context, cfg *config) error {
	b, err := prepareShifting(ctx, cfg)
	if err != nil {
		return err
	}
	defer b.store.Close()
	cfg.report.title("A mix that shifts: %d sources (%s) in an object store that takes %v for an answer, %d steps of %v", len(b.long.job.Sources), b.origin, b.opts.wait, b.opts.steps, b.opts.pace)
	return b.scaled(ctx)
}

// prepareShifting writes the sources, serves them, has a service learn what they cost, and writes the jobs with their digests.
// The store is the caller's to close.
func prepareShifting(ctx context.Context, cfg *config) (*shifting, error) {
	b := &shifting{cfg: cfg, opts: cfg.shifting}
	var err error
	if b.kinds, b.origin, err = shiftingKinds(ctx); err != nil {
		return nil, err
	}
	dir := filepath.Join(cfg.dir, "shifting")
	if err := writeShifting(dir, b.kinds); err != nil {
		return nil, err
	}
	if b.store, err = serveObjects(dir); err != nil {
		return nil, err
	}
	if b.short, err = newShiftingJob(ctx, cfg.dir, b.kinds, b.opts.layoutSteps); err == nil {
		err = b.learn(ctx)
	}
	if err == nil {
		b.long, err = newShiftingJob(ctx, cfg.dir, b.kinds, b.opts.steps)
	}
	if err != nil {
		return nil, errors.Join(err, b.store.Close())
	}
	return b, nil
}

// learners are the workers of the service that learns what sources cost.
const learners = 8

// learn has a service find out what the sources cost, as that of an earlier life of the job.
func (b *shifting) learn(ctx context.Context) error {
	dir, err := os.MkdirTemp(b.cfg.dir, "log")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t := shiftingTrial{name: "an earlier life", job: b.short, args: serveArgs{Layout: dealt(b.short.job, 1, learners), LogDir: dir}, far: true}
	if t.args.Profile, err = b.cfg.profileOf("shifting", 0); err != nil {
		return err
	}
	if _, err := b.once(ctx, t); err != nil {
		return err
	}
	if b.profile, err = profile.Read(dir); err == nil && !b.profile.Covers(b.short.job.Sources) {
		err = fmt.Errorf("a run of %d steps did not read all sources: have more with -shift-layout-steps", b.opts.layoutSteps)
	}
	return err
}

// scaled compares fixed loaders with scaled ones, at the pace, and draws the last run of each.
func (b *shifting) scaled(ctx context.Context) error {
	scale := scaling.Options{Every: b.opts.every, Scaling: sizing.Scaling{Most: b.opts.most}}
	job := b.long.job
	trials := []shiftingTrial{
		{name: fmt.Sprintf("%d loaders, which suffice in the mean", shiftingFirst), args: serveArgs{Layout: dealt(job, shiftingFirst, 1)}},
		{name: fmt.Sprintf("%d loaders, for the peak", b.opts.peak), args: serveArgs{Layout: dealt(job, b.opts.peak, 1)}},
		{name: fmt.Sprintf("%d to %d loaders, scaled", shiftingFirst, b.opts.most), args: serveArgs{Layout: dealt(job, shiftingFirst, 1), Scale: scale}},
	}
	results, err := b.interleave(ctx, trials, func(ctx context.Context, t shiftingTrial) (sample, error) {
		t.job, t.pace = b.long, b.opts.pace
		o, err := b.withLog(ctx, t)
		if err != nil {
			return sample{}, err
		}
		b.outcomes = append(b.outcomes, o)
		return o.waits(), nil
	})
	if err != nil {
		return err
	}
	for i := range results {
		results[i].Unit, results[i].Less = "% of the time waited", true
	}
	cfg := b.cfg
	if err := cfg.report.table(results, waitedSeconds, stalledSteps, loaderSeconds, mostLoaders, scalings, serviceCPU); err != nil {
		return err
	}
	b.outcomes = b.outcomes[len(b.outcomes)-len(trials):]
	b.plot()
	return nil
}

// withLog runs a service that has learned what its sources cost, as one that was started again.
func (b *shifting) withLog(ctx context.Context, t shiftingTrial) (*shiftingOutcome, error) {
	dir, err := os.MkdirTemp(b.cfg.dir, "log")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := b.profile.Write(dir); err != nil {
		return nil, err
	}
	t.args.LogDir = dir
	return b.once(ctx, t)
}

// interleave measures all trials in turn, as often as runs are asked for. As that takes long, stderr says how far it is.
func (b *shifting) interleave(ctx context.Context, trials []shiftingTrial, measure func(context.Context, shiftingTrial) (sample, error)) ([]result, error) {
	results := make([]result, len(trials))
	for range b.cfg.runs {
		for i, t := range trials {
			began := time.Now()
			s, err := measure(ctx, t)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", t.name, err)
			}
			fmt.Fprintf(os.Stderr, "shifting: %s: %.0f s\n", t.name, time.Since(began).Seconds())
			results[i].Scenario, results[i].Name = "shifting", t.name
			results[i].add(s)
		}
	}
	return results, nil
}
