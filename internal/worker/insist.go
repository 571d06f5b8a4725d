package worker

import (
	"context"
	"errors"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

// Limits of how often a batch is run again.
const (
	// ownDeaths is how often a batch may end its worker before it is halved, or its row given
	// up: once may have another cause.
	ownDeaths = 2
	// outsideDeaths is how often a row may lose its worker to something outside of it.
	outsideDeaths = 8
	// otherDeaths is how often a batch may lose its worker to another one's work.
	otherDeaths = 64
)

// insist maps rows whatever becomes of workers: what ends one again is halved, and so is
// what raises without saying for which row.
func (f *Function) insist(ctx context.Context, r rows) (result, error) {
	var deaths [3]int // own, outside, other
	for {
		begin := time.Now()
		done, death, err := f.once(ctx, r)
		switch {
		case errors.Is(err, errRaised) && r.hi-r.lo > 1:
			return f.halve(ctx, r)
		case err != nil:
			return result{}, err
		case death == nil:
			f.took(r, time.Since(begin))
			return done, nil
		}
		deaths[death.kind()]++
		switch {
		case death.slow && death.working && r.hi-r.lo > 1:
			f.most.Store(min(f.most.Load(), int64(f.size(r)/2))) // so that later ones need not fail first
			return f.halve(ctx, r)
		case death.setup && deaths[0] >= ownDeaths:
			return result{}, fault.Userf("function %s: its setup: %s", f.use.Name, death.why)
		case deaths[2] >= otherDeaths, deaths[1] >= outsideDeaths:
			return result{}, fault.Lostf("function %s: %s, the %dth time", f.use.Name, death.why, deaths[1]+deaths[2])
		case deaths[0]+deaths[1] >= ownDeaths && r.hi-r.lo > 1:
			return f.halve(ctx, r)
		case deaths[0] >= ownDeaths:
			return result{columns: f.empty(), bad: []badRow{{r.lo, fault.As(fault.User, errors.New(death.why))}}, end: r.hi}, nil
		}
	}
}

// took makes batches larger again if one of the present size took little time.
func (f *Function) took(r rows, d time.Duration) {
	most, all := f.most.Load(), int64(f.env.opt.BatchBytes)
	if most < all && d < f.env.opt.Timeout/4 && int64(f.size(r)) > most/2 {
		f.most.Store(min(2*most, all))
	}
}

// kind is the place of a death in insist's counts.
func (d *death) kind() int {
	switch {
	case !d.working && !d.setup:
		return 2
	case d.outside:
		return 1
	}
	return 0
}

func (f *Function) halve(ctx context.Context, r rows) (result, error) {
	left, right := r.halves()
	first, err := f.insist(ctx, left)
	if err != nil || first.end < left.hi {
		return first, err
	}
	second, err := f.insist(ctx, right)
	if err != nil {
		return result{}, err
	}
	return combine(first, second), nil
}
