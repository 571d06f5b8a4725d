package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace-data/millrace/internal/planner/scaling"
	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/profile"
	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sizing"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// shiftingFlags are those of the scenario shifting.
type shiftingFlags struct {
	steps, most, layouts int
	pace, every          time.Duration
	svg                  string
}

func (f *shiftingFlags) register(flags *flag.FlagSet) {
	flags.IntVar(&f.steps, "shift-steps", 240, "shifting: steps of a run")
	flags.DurationVar(&f.pace, "shift-pace", 250*time.Millisecond, "shifting: what a paced trainer takes for a step")
	flags.DurationVar(&f.every, "shift-every", time.Second, "shifting: interval of the scaler; less than a service's 5s, as the mix shifts within a minute")
	flags.IntVar(&f.most, "shift-most", 8, "shifting: most loaders that the scaler may have")
	flags.IntVar(&f.layouts, "shift-layouts", len(handMade), "shifting: hand-made layouts to compare with")
	flags.StringVar(&f.svg, "shift-svg", "build/shifting.svg", "shifting: `file` for the plot of waits, loaders and decisions")
}

// shiftingFirst are the loaders, of a worker each, that fixed and scaled services begin with.
const shiftingFirst = 2

// shiftingRecords of each source are measured for its costs.
const shiftingRecords = 40

// shifting is the scenario while it runs.
type shifting struct {
	cfg      *config
	opts     shiftingFlags
	kinds    []shiftingKind
	spec     string // file
	job      *jobspec.Job
	digests  [][32]byte // by step, of the reference reader
	profile  *profile.Profile
	outcomes []*shiftingOutcome // of the last run, for the plot
}

// benchShifting has the mix of 40 sources of unlike cost ramp and jump under a paced trainer: fixed loaders beside scaled
// ones, then the layout by cost beside hand-made ones. Every step of every run is compared with the reference reader.
func benchShifting(ctx context.Context, cfg *config) error {
	b := &shifting{cfg: cfg, opts: cfg.shifting}
	kinds, origin, err := shiftingKinds(ctx)
	if err != nil {
		return err
	}
	b.kinds = kinds
	dir := filepath.Join(cfg.dir, "shifting")
	if b.spec, err = writeShifting(dir, kinds, b.opts.steps); err != nil {
		return err
	}
	if b.job, err = jobspec.Load(b.spec); err != nil {
		return err
	}
	cfg.report.title("A mix that shifts: %d sources (%s), %d steps", len(b.job.Sources), origin, b.opts.steps)
	if err := b.solve(ctx); err != nil {
		return err
	}
	if b.profile, err = preview.Profile(ctx, store.Local{}, nil, b.job, preview.ProfileOptions{Records: shiftingRecords, Workers: 1}); err != nil {
		return err
	}
	if err := b.scaled(ctx); err != nil {
		return err
	}
	return b.layouts(ctx)
}

// solve has the reference reader compute the digests.
func (b *shifting) solve(ctx context.Context) error {
	n, _, err := reference.Read(ctx, store.Local{}, b.job, nil, int64(b.opts.steps), func(s *reference.Step) error {
		b.digests = append(b.digests, s.Digest)
		return nil
	})
	if err == nil && n != int64(b.opts.steps) {
		err = fmt.Errorf("the reference reader has %d steps, %d are needed", n, b.opts.steps)
	}
	return err
}

// scaled compares fixed loaders with scaled ones, at the pace, and draws the last run of each.
func (b *shifting) scaled(ctx context.Context) error {
	scale := scaling.Options{Every: b.opts.every, Scaling: sizing.Scaling{Most: b.opts.most}}
	trials := []shiftingTrial{
		{name: fmt.Sprintf("%d loaders", shiftingFirst), args: serveArgs{Layout: dealt(b.job, shiftingFirst, 1)}},
		{name: fmt.Sprintf("%d loaders", b.opts.most), args: serveArgs{Layout: dealt(b.job, b.opts.most, 1)}},
		{name: fmt.Sprintf("%d to %d, scaled", shiftingFirst, b.opts.most), args: serveArgs{Layout: dealt(b.job, shiftingFirst, 1), Scale: scale}},
	}
	results, err := b.interleave(ctx, trials, func(ctx context.Context, t shiftingTrial) (sample, error) {
		t.pace = b.opts.pace
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
	for _, d := range b.outcomes[len(trials)-1].decisions {
		cfg.report.note("Step %d: %s.", d.step, d.did)
	}
	return b.plot()
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

// layouts compares the layout by cost with hand-made ones and with a loader for each source: the rate without a pace, and
// waiting at the pace. The best hand-made one comes first.
func (b *shifting) layouts(ctx context.Context) error {
	decision := service.Size(b.job, b.profile, service.SizeOptions{Steps: int64(b.opts.steps)})
	trials := b.handMade(b.opts.layouts)
	made := len(trials)
	trials = append(trials,
		shiftingTrial{name: "by cost (plan --sizing)", args: serveArgs{Layout: decision.Layout()}},
		shiftingTrial{name: "a loader a source", args: serveArgs{Layout: dealt(b.job, len(b.job.Sources), 1)}})
	results, err := b.interleave(ctx, trials, func(ctx context.Context, t shiftingTrial) (sample, error) {
		free, err := b.once(ctx, t)
		if err != nil {
			return sample{}, err
		}
		t.pace = b.opts.pace
		paced, err := b.once(ctx, t)
		if err != nil {
			return sample{}, err
		}
		s := sample{float64(free.tokens) / 1e6 / free.seconds, paced.waits().extra}
		s.extra[waitedShare], s.extra[serviceCPU] = paced.waits().value, free.cpu
		s.extra[layoutWorkers], s.extra[layoutBuffers] = sizeOf(t.args.Layout, b.job)
		return s, nil
	})
	if err != nil {
		return err
	}
	for i := range results {
		results[i].Unit = "M tokens/s"
	}
	slices.SortFunc(results[:made], func(x, y result) int {
		if median(x.Values) > median(y.Values) {
			return -1
		}
		return 1
	})
	b.cfg.report.title("Layouts of loaders: rate without a pace, waiting at %v a step; the best of %d hand-made ones first", b.opts.pace, made)
	return b.cfg.report.table(results, mostLoaders, layoutWorkers, layoutBuffers, waitedShare, stalledSteps, serviceCPU)
}
