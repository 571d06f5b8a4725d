package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

// Workers die, of what they work on or for other reasons. What becomes of the rows then is decided here and
// nowhere else: whoever calls a function does not try again what was tried here.

// Limits of how often a batch is run again.
const (
	// ownDeaths is how often a batch may end its worker before it is divided: once may have another cause.
	ownDeaths = 2
	// aloneDeaths is how often a row that is a batch by itself has to end its worker before it is taken for
	// the reason, the last time a worker that did nothing else; slowDeaths if it took too long, which takes long.
	aloneDeaths, slowDeaths = 3, 2
	// outsideDeaths is how often in a row the same rows may lose their worker to something outside of it. With the
	// pauses between them it is some 3 s.
	outsideDeaths = 8
	// otherDeaths is how often a batch may lose its worker to another one's work.
	otherDeaths = 64
)

// verdict is what is done after a worker died.
type verdict int

const (
	tryAgain verdict = iota
	divide           // the rows are tried in smaller batches
	blame            // the only row is why it died
	setupFails
	giveUp
)

// trial is what became of the attempts at the same rows.
type trial struct {
	own, outside, other int // deaths: of the rows' own doing, of nobody's, of other rows'
	fresh               bool
}

// judge takes a death into account. alone says that the rows are one.
func (t *trial) judge(d *Death, alone bool) verdict {
	switch {
	case !d.Working && !d.Setup:
		t.other++
	case d.Outside:
		t.outside++
	default:
		t.own++
	}
	enough := aloneDeaths
	if d.Slow {
		enough = slowDeaths
	}
	t.fresh = (alone || d.Setup) && t.own > 0
	switch {
	case d.Setup && d.Fresh && t.own >= ownDeaths:
		return setupFails
	case t.other >= otherDeaths, t.outside >= outsideDeaths:
		return giveUp
	case !alone && (d.Slow && d.Working || t.own+t.outside >= ownDeaths):
		return divide
	case alone && t.own >= enough && d.Fresh && d.Working:
		return blame
	}
	return tryAgain
}

// pause is the time before the next attempt: none at first, as a worker that died says nothing of the next one.
func (t *trial) pause() time.Duration {
	if t.outside < 2 {
		return 0
	}
	return pause(t.outside - 2)
}

// insist maps rows whatever becomes of workers: what ends one again is divided, and so is
// what raises without saying for which row.
func (f *Function) insist(ctx context.Context, r rows) (result, error) {
	var t trial
	for {
		begin := time.Now()
		done, death, err := f.once(ctx, r, t.fresh)
		switch {
		case errors.Is(err, errRaised) && r.hi-r.lo > 1:
			return f.divide(ctx, r)
		case err != nil:
			return result{}, err
		case death == nil:
			f.took(r, time.Since(begin))
			return done, nil
		}
		switch t.judge(death, r.hi-r.lo == 1) {
		case divide:
			if death.Slow { // so that later ones need not fail first
				f.most.Store(min(f.most.Load(), int64(f.size(r)/2)))
			}
			return f.divide(ctx, r)
		case blame:
			f.blamed.add(f, r, death)
			return f.blame(r, death)
		case setupFails:
			hint := ""
			if death.Big {
				hint = ": give the step more `memory`"
			}
			return result{}, fault.Userf("function %s: its setup: %s%s%s", f.use.Name, death.Why, hint, death.Printed)
		case giveUp:
			return result{}, fault.Tried(fault.As(fault.Lost, f.lost(r, t, death)))
		}
		sleep(ctx, t.pause())
	}
}

// blame makes a row a bad record that ends its workers. What takes too long or too much memory here may not
// do so elsewhere: it is a bad record only if the limit is part of the job.
func (f *Function) blame(r rows, d *Death) (result, error) {
	limit := ""
	switch opt := &f.env.opt; {
	case d.Big && d.Idle > opt.Memory:
		return result{}, fault.Userf("function %s: a worker holds %d MiB before its first row, and its step allows %d MiB: give the step more `memory`",
			f.use.Name, d.Idle>>20, opt.Memory>>20)
	case d.Slow && !opt.TimeoutDecides:
		limit = fmt.Sprintf("timeout: %d", max(2*int(opt.Timeout.Seconds()), 1))
	case d.Big && !opt.MemoryDecides:
		limit = fmt.Sprintf("memory: %dMiB", 2*opt.Memory>>20)
	}
	if limit != "" {
		return result{}, fault.Userf("function %s: row %d: %s: change the function, or give its step a limit in the spec, such as `%s`; a row beyond that is a bad record, and the limit part of the job",
			f.use.Name, r.row(r.lo), d.Why, limit)
	}
	return result{columns: f.empty(), bad: []badRow{{r.lo, fault.As(fault.User, errors.New(d.Why))}}, end: r.hi}, nil
}

// LostError says that workers died while they worked on the same rows until it was given up. Its class is lost.
type LostError struct {
	Function, Source, Step string
	File                   int   // number in the manifest
	First, Last            int64 // rows
	Deaths                 int   // in a row
	Why                    string
}

func (e *LostError) Error() string {
	return fmt.Sprintf("function %s: %s: %d workers in a row were lost, the last one: %s", e.Function, named(e.First, e.Last), e.Deaths, e.Why)
}

// named says which rows of a file these are.
func (r rows) named() string { return named(r.row(r.lo), r.row(r.hi-1)) }

func named(first, last int64) string {
	if first == last {
		return fmt.Sprintf("row %d", first)
	}
	return fmt.Sprintf("rows %d to %d", first, last)
}

func (f *Function) lost(r rows, t trial, d *Death) error {
	return &LostError{
		Function: f.use.Name, Source: f.use.Source, Step: f.use.Step, File: r.file, First: r.row(r.lo), Last: r.row(r.hi - 1),
		Deaths: t.own + t.outside + t.other, Why: d.Why + d.Printed,
	}
}

// row is the number in its file of a row.
func (r rows) row(at int) int64 {
	row, _ := r.of.in.Key(r.of.place(at))
	return row
}

// took makes batches larger again if one of the present size took little time.
func (f *Function) took(r rows, d time.Duration) {
	most, all := f.most.Load(), int64(f.env.opt.BatchBytes)
	if most < all && d < f.env.opt.Timeout/4 && int64(f.size(r)) > most/2 {
		f.most.Store(min(2*most, all))
	}
}

// partsEach is into how many batches rows are divided. Those without the row that is looked for take together no longer than
// all did before, and the one with it a whole timeout again: of 32, a row is found among 10,000 in three rounds, of two in thirteen.
const partsEach = 32

// divide maps rows in smaller batches, one after the other.
func (f *Function) divide(ctx context.Context, r rows) (result, error) {
	var all []result
	for part := r; part.lo < r.hi; part.lo = part.hi {
		part.hi = min(part.lo+max((r.hi-r.lo)/partsEach, 1), r.hi)
		done, err := f.insist(ctx, part)
		if err != nil {
			return result{}, err
		}
		if all = append(all, done); f.last(done, part) {
			break
		}
	}
	return combine(all...), nil
}

// last reports whether rows behind these are left.
func (f *Function) last(done result, of rows) bool { return done.end < of.hi || f.stops(done, of) }

// stops reports whether the job stops at one of these rows.
func (f *Function) stops(done result, of rows) bool {
	return f.use.Stop && of.most > 0 && len(done.bad) > 0
}
