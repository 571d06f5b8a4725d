package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/millrace-data/millrace/internal/service"
)

// layoutRounds are the rounds of the scenario layouts: how many hand-made layouts are in it, the best ones of the round before, and
// for how long each is run. Only in long runs blocks that are read ahead when the clock starts, or are not needed any more when it
// stops, are few; the last round is run as often as runs are asked for. A run that is cut off has had the cheaper part of the mix, so
// that a layout which leaves is not taken for slower than it is.
var layoutRounds = []struct {
	best int
	long bool
	most time.Duration
}{{len(handMade), false, 2 * time.Second}, {4, true, 8 * time.Second}}

// benchLayouts compares the layout by cost with hand-made ones, with a loader for each source, and with one for all: how fast
// steps of the mix that shifts come without a pace. All layouts of a round are run in turn.
func benchLayouts(ctx context.Context, cfg *config) error {
	b, err := prepareShifting(ctx, cfg)
	if err != nil {
		return err
	}
	defer b.store.Close()
	job := b.long.job
	decision := service.Size(job, b.profile, service.SizeOptions{Steps: int64(b.opts.steps)})
	others := []*layoutRun{
		{trial: shiftingTrial{name: "by cost (plan --sizing)", args: serveArgs{Layout: decision.Layout()}}},
		{trial: shiftingTrial{name: "a loader a source", args: serveArgs{Layout: dealt(job, len(job.Sources), 1)}}},
		{trial: shiftingTrial{name: "one loader for all, a worker a core", args: serveArgs{Layout: dealt(job, 1, runtime.GOMAXPROCS(0))}}},
	}
	var made []*layoutRun
	for _, t := range b.handMade(b.opts.layouts) {
		made = append(made, &layoutRun{trial: t})
	}
	for n, round := range layoutRounds {
		in := slices.Concat(made[:min(round.best, len(made))], others)
		runs := 1
		if round.long {
			runs = cfg.runs
		}
		for range runs {
			for _, l := range in {
				l.trial.job, l.trial.most = b.short, round.most
				if round.long {
					l.trial.job = b.long
				}
				if err := l.run(ctx, b, n); err != nil {
					return fmt.Errorf("%s: %w", l.trial.name, err)
				}
			}
		}
		slices.SortStableFunc(made, better)
	}
	return b.showLayouts(made, others, decision.Notes)
}

// layoutRun is a layout, and what its runs of the last round that it was in gave.
type layoutRun struct {
	trial shiftingTrial
	round int
	got   result
}

// better puts layouts first that came further, and of those that came as far the faster ones.
func better(a, b *layoutRun) int {
	switch {
	case a.round > b.round, a.round == b.round && median(a.got.Values) > median(b.got.Values):
		return -1
	case a.round == b.round && median(a.got.Values) == median(b.got.Values):
		return 0
	}
	return 1
}

// run runs the layout in a round.
func (l *layoutRun) run(ctx context.Context, b *shifting, round int) error {
	began := time.Now()
	t := l.trial
	t.warm = layoutWarm
	o, err := b.once(ctx, t)
	if err != nil {
		return err
	}
	if l.round != round || l.got.Name == "" {
		l.round, l.got = round, result{Scenario: "layouts", Name: t.name, Unit: "M tokens/s"}
	}
	s := sample{float64(o.tokens) / 1e6 / max(o.seconds, 1e-9), map[string]float64{serviceCPU: o.cpu, mostLoaders: float64(slices.Max(o.loaders)), layoutRound: float64(round + 1)}}
	s.extra[layoutWorkers], s.extra[layoutBuffers] = sizeOf(t.args.Layout, b.short.job)
	l.got.add(s)
	fmt.Fprintf(os.Stderr, "layouts: round %d, %s: %.2f M tokens/s, %.0f s\n", round+1, t.name, s.value, time.Since(began).Seconds())
	return nil
}

// showLayouts prints all layouts, and compares those that were in the last round.
func (b *shifting) showLayouts(made, others []*layoutRun, notes []string) error {
	var results []result
	for _, l := range slices.Concat(others, made) {
		results = append(results, l.got)
	}
	r := b.cfg.report
	r.title("Layouts of loaders: %d sources (%s) in an object store that takes %v for an answer, %d steps without a pace; then hand-made ones, the best first",
		len(b.short.job.Sources), b.origin, b.opts.wait, b.opts.steps)
	if err := r.table(results, mostLoaders, layoutWorkers, layoutBuffers, layoutRound, serviceCPU); err != nil {
		return err
	}
	rate := func(l *layoutRun) float64 { return median(l.got.Values) }
	r.note("By cost: %.2f of the best of %d hand-made ones (%s), %.2f of a loader a source, %.2f of one loader for all.",
		rate(others[0])/rate(made[0]), len(made), made[0].trial.name, rate(others[0])/rate(others[1]), rate(others[0])/rate(others[2]))
	for _, note := range notes {
		r.note("%s.", note)
	}
	return nil
}
