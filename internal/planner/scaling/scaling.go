// Package scaling has a running job's loaders join and leave as the mix asks for them (OVERLORD, section 5.2).
//
// It owns the looks at the job, what its sources have been seen to cost, and what becomes of a decision: orders to
// the fleet, another deal to the planner's core. It never decides: package sizing does. No byte of a batch depends on it.
package scaling

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/millrace-data/millrace/internal/fleet"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/status"
	"github.com/millrace-data/millrace/internal/sizing"
	"github.com/millrace-data/millrace/jobspec"
)

// DefaultEvery is how often the scaler looks: three intervals and the start of a loader are less than half a
// minute, and a scheduled ramp is known that far ahead.
const DefaultEvery = 5 * time.Second

// arrivals is how often in each interval it looks whether a loader came that was asked for: it can open its sources then.
const arrivals = 10

// Options say how loaders are scaled.
type Options struct {
	Fleet fleet.Fleet   // that starts and ends loaders; nil: nothing is scaled
	Every time.Duration // between two looks; default DefaultEvery
	Ahead int           // steps that the planner plans ahead
	sizing.Scaling
}

// Planner is what is looked at, and told.
type Planner interface {
	// View is what the planner's core says of the job. It fails when the planner ends, or ctx does.
	View(ctx context.Context) (control.Snapshot, error)
	// Redeal gives sources to other places, by source.
	Redeal(ctx context.Context, table [][]int)
}

// Scaling looks at the job now and then, has the scaler decide, and does what it says. Now may be called from
// anywhere; all else belongs to the goroutine that looks.
type Scaling struct {
	opts     Options
	planner  Planner
	job      *jobspec.Job
	shadows  int // loaders beside those that are scaled
	costs    *Costs
	log      *slog.Logger
	scaler   *sizing.Scaler // nil before the job runs
	schedule mix.Schedule
	table    [][]int
	at       time.Time // of the last look; zero: there was none
	drawn    float64   // units of the mix by then
	step     int64     // planned by then
	pace     sizing.Pace

	mu      sync.Mutex // guards the fields below
	shown   status.Scaling
	refused error // by the fleet, of what it was asked for last
}

// New returns the scaling of a job that has some shadows beside its loaders, which are the least of the options until it decides.
func New(opts Options, planner Planner, job *jobspec.Job, shadows int, costs *Costs, log *slog.Logger) *Scaling {
	if opts.Every <= 0 {
		opts.Every = DefaultEvery
	}
	return &Scaling{opts: opts, planner: planner, job: job, shadows: shadows, costs: costs, log: log, schedule: compile.Schedule(job), shown: status.Scaling{Loaders: opts.Least + shadows}}
}

// Begin has it look until ctx ends, or what it returns is called, which waits for it. Where a job resumes, loaders of its
// earlier life may come back: they get an interval to do so before any are asked for in their place.
func (s *Scaling) Begin(ctx context.Context, resumes bool) (end func()) {
	if s.opts.Fleet == nil {
		return func() {}
	}
	ctx, stop := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		if x, err := s.planner.View(ctx); err == nil && !resumes {
			s.ask(ctx, &x)
		}
		s.run(ctx)
	})
	return func() {
		stop()
		looking.Wait()
	}
}

// run looks until ctx ends.
func (s *Scaling) run(ctx context.Context) {
	tick := time.NewTicker(max(s.opts.Every/arrivals, 1))
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case now := <-tick.C:
			switch {
			case now.Sub(last) >= s.opts.Every:
				s.look(ctx, now)
				last = now
			case s.scaler != nil && s.scaler.Awaits():
				s.welcome(ctx)
			}
		case <-ctx.Done():
			return
		}
	}
}

// look takes one interval.
func (s *Scaling) look(ctx context.Context, now time.Time) {
	x, err := s.planner.View(ctx)
	if err != nil {
		return
	}
	if x.State == "starting" || x.State == "running" {
		s.opts.Fleet.Joined(fleet.Loader, len(x.Loaders))
	}
	interval, ok := s.interval(&x, now)
	if !ok {
		s.ask(ctx, &x)
		return
	}
	d := s.scaler.Next(interval)
	s.redeal(ctx, d.Table)
	s.opts.Fleet.Draining(fleet.Loader, d.Drained)
	s.show(&d, s.opts.Fleet.Scale(ctx, fleet.Loader, d.Want+s.shadows))
}

// ask has the fleet run the loaders that the job begins with, where there are fewer and nothing else was decided.
func (s *Scaling) ask(ctx context.Context, x *control.Snapshot) {
	n := s.opts.Least + s.shadows
	if s.scaler != nil || x.State != "starting" && x.State != "running" || len(x.Loaders) >= n {
		return
	}
	err := s.opts.Fleet.Scale(ctx, fleet.Loader, n)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = err
}

// welcome gives loaders that came their sources.
func (s *Scaling) welcome(ctx context.Context) {
	if x, err := s.planner.View(ctx); err == nil {
		s.redeal(ctx, s.scaler.Arrived(places(&x)))
	}
}

// redeal tells the planner who reads what, if that is news.
func (s *Scaling) redeal(ctx context.Context, table [][]int) {
	if !slices.EqualFunc(table, s.table, slices.Equal) {
		s.table = table
		s.planner.Redeal(ctx, table)
	}
}

// show keeps a decision for the status.
func (s *Scaling) show(d *sizing.Scaled, err error) {
	if d.Did != "" {
		s.log.Info("scaling", "did", d.Did, "loaders", d.Want)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown.Loaders, s.shown.Drained, s.shown.Decided, s.refused = d.Want+s.shadows, d.Drained, true, err
	if d.Did != "" {
		did := append(slices.Clone(s.shown.Did), d.Did)
		s.shown.Did = did[max(len(did)-status.MostDecisions, 0):]
	}
}

// Now is what the status says of it; nil if nothing is scaled.
func (s *Scaling) Now() *status.Scaling {
	if s.opts.Fleet == nil {
		return nil
	}
	problem := s.opts.Fleet.Problem()
	s.mu.Lock()
	defer s.mu.Unlock()
	shown := s.shown
	if shown.Problem = problem; s.refused != nil {
		shown.Problem = s.refused.Error()
	}
	return &shown
}

// interval is what happened since the last look; false if that says nothing: ranks have not begun, or nothing was drawn.
func (s *Scaling) interval(x *control.Snapshot, now time.Time) (i sizing.Interval, ok bool) {
	drawn := 0.0
	for k := range x.Sources {
		drawn += s.units(&x.Sources[k])
	}
	took, steps, more := now.Sub(s.at).Seconds(), x.Planned-s.step, drawn-s.drawn
	first := s.at.IsZero()
	s.at, s.step, s.drawn = now, x.Planned, drawn
	if first || x.State != "running" || !x.Joined || steps <= 0 || more <= 0 || took <= 0 || len(x.Deal) == 0 {
		return i, false
	}
	if s.scaler == nil {
		s.scaler = sizing.NewScaler(s.opts.Scaling, x.Deal) // its first table says that loaders which come read nothing by themselves
	}
	pace := s.pace.Next(float64(steps), took, x.Starved)
	i.Rate = pace * more / float64(steps)
	i.Places, i.Reads = places(x), x.Deal
	i.Sources = s.loads(x, pace)
	return i, len(i.Sources) > 0
}

// places are the shares of the reading, and who has them.
func places(x *control.Snapshot) []sizing.PlaceStatus {
	all := make([]sizing.PlaceStatus, x.Places)
	for _, l := range x.Loaders {
		if l.Place >= 0 {
			all[l.Place] = sizing.PlaceStatus{Loader: l.Name, Workers: l.Workers, Blocks: l.Blocks}
		}
	}
	return all
}

// units is what was drawn of a source.
func (s *Scaling) units(x *control.SourceStatus) float64 {
	if s.job.Mix.Unit == "samples" {
		return float64(x.Drawn)
	}
	return float64(x.Tokens)
}

// loads are those of the sources at a pace of steps a second.
func (s *Scaling) loads(x *control.Snapshot, pace float64) (all []sizing.Load) {
	ahead := s.ahead(x, pace)
	for k := range x.Deal {
		l := sizing.Load{Name: x.Sources[k].Name, Share: x.Sources[k].Scheduled, Cost: s.costs.of(k, s.job.Mix.Unit == "samples")}
		for _, shares := range ahead {
			share := 0.0 // of a source that joined the job
			if k < len(shares) {
				share = float64(shares[k]) / (1 << mix.Bits)
			}
			l.Ahead = append(l.Ahead, share)
		}
		all = append(all, l)
	}
	return all
}

// looks is at how many steps ahead the schedule is looked at: ramps are smooth, and a jump is seen when it is as far
// away as one of them, or nearer.
const looks = 16

// ahead are the shares that the schedule gives sources at some steps, as far ahead as the scaler has to know; nil if the mix does
// not follow the schedule, as weights were set by hand or by feedback. Loaders read for steps that are not planned yet, about as
// many as are planned.
func (s *Scaling) ahead(x *control.Snapshot, pace float64) (all [][]uint64) {
	for k, share := range s.schedule.Shares(x.Planned) {
		if math.Abs(float64(share)/(1<<mix.Bits)-x.Sources[k].Scheduled) > 1e-6 {
			return nil
		}
	}
	steps := pace*s.opts.Every.Seconds()*float64(s.scaler.Lead()) + float64(s.opts.Ahead)
	for n := range looks {
		all = append(all, s.schedule.Shares(x.Planned+int64(steps*float64(n+1)/looks)))
	}
	return all
}
