package planner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/failpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/control"
)

// Epochs number the planners of a job. A planner raises the epoch in the job's log before it
// answers anyone, and says it first in every session and in every answer: members refuse what a
// planner of a lower epoch says, and tell whoever they talk to of the highest that they heard of.
// A planner that hears of a higher one than its own refuses whoever says so, and ends.

// earlier is the log that a planner found when it began.
type earlier struct {
	log      checkpoint.Log // nil if there is none
	identity [32]byte       // of the log
	err      error          // why there is none, though there may be one
	epoch    uint64         // of this planner; 0 without a log
}

// standbyEvery is how often a planner that stands by looks whether the log is free.
const standbyEvery = 50 * time.Millisecond

// takeLog opens the log of an earlier life, if there is one, and raises its epoch. A planner that
// stands by waits until it is free.
func takeLog(ctx context.Context, opts *Options) (e earlier, err error) {
	if opts.LogDir == "" {
		return e, nil
	}
	for ctx.Err() == nil {
		again, err := e.tryTake(ctx, opts)
		if !again || err != nil {
			return e, err
		}
		select {
		case <-time.After(standbyEvery):
		case <-ctx.Done():
		}
	}
	return e, nil
}

// tryTake is an attempt of takeLog; again is true while another planner has the log, or was faster
// to take it, and this one stands by.
func (e *earlier) tryTake(ctx context.Context, opts *Options) (again bool, err error) {
	if opts.Standby && opts.LogMirror != "" {
		if err := opts.awaitMirror(ctx); err != nil || ctx.Err() != nil {
			return false, err
		}
	}
	e.log, e.identity, e.err = opts.resumeLog(ctx)
	switch {
	case e.log == nil && opts.Standby && (e.err == nil || errors.Is(e.err, checkpoint.ErrInUse)):
		return true, nil
	case e.log == nil && e.err == nil:
		e.epoch = 1 // of the log that is to begin
	}
	if e.log == nil {
		return false, nil
	}
	e.epoch = e.log.Epoch() + 1
	failpoint.Hit(failpoint.FenceBefore)
	if err = e.log.Fence(e.epoch); err == nil {
		failpoint.Hit(failpoint.FenceAfter)
		return false, nil
	}
	faster := errors.Is(err, checkpoint.ErrOrder)
	if err = errors.Join(fmt.Errorf("raising the epoch of the log: %w", err), e.log.Close()); faster && opts.Standby {
		opts.Log.Info("another planner took over first", "err", err)
		*e = earlier{}
		return true, nil
	} else if faster {
		err = fault.As(fault.Lost, fmt.Errorf("another planner took over while this one started: %w", err))
	}
	return false, err
}

// resumes says whether the log has steps.
func (e *earlier) resumes() bool {
	if e.log == nil {
		return false
	}
	_, some := e.log.Last()
	return some
}

// openLog opens the log of the job with this identity, which nobody writes but this planner.
func (w *logWriter) openLog(root [32]byte) (checkpoint.Log, error) {
	e := &w.earlier
	if e.log != nil && e.identity == root {
		return e.log, nil
	}
	if e.log != nil {
		if err := e.log.Close(); err != nil {
			return nil, err
		}
		e.log = nil
	}
	log, err := w.opts.openLog(root)
	if err != nil {
		return nil, err
	}
	if e.epoch == 0 || log.Epoch() >= e.epoch {
		err = fault.Lostf("the log in %s was begun by another planner since this one started: start again", w.opts.LogDir)
	} else {
		err = log.Fence(e.epoch)
	}
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return log, nil
}

// checkEpoch ends this planner if somebody heard of a higher epoch than its own.
func (p *Planner) checkEpoch(ctx context.Context, epoch uint64, who string) error {
	if p.epoch == 0 || epoch <= p.epoch {
		return nil
	}
	p.stale.Add(1)
	err := fault.Lostf("%s has heard of the planner of epoch %d, and this one has epoch %d: another planner took its place, or this one was started with another log (%s) than the one before; "+
		"only one may go on: stop this one, or start all roles again", who, epoch, p.epoch, p.opts.LogDir)
	_ = p.put(ctx, deposed{err}) // it fails when there is no planner any more
	return err
}

// checkAsked is checkEpoch for a request of a trainer, unless that is refused for its spec. It may
// have refused planners of lower epochs itself.
func (p *Planner) checkAsked(ctx context.Context, req interface {
	GetEpoch() uint64
	GetStaleRefused() uint32
}, who string, spec error) error {
	if spec != nil {
		return spec
	}
	err := p.checkEpoch(ctx, req.GetEpoch(), who)
	if err == nil {
		p.stale.Add(uint64(req.GetStaleRefused()))
	}
	return err
}

// staleRefused is how often, as far as is known here, something was refused for its epoch: by
// members what a planner said whose place another one took, by such a planner what others said.
func (p *Planner) staleRefused() uint64 {
	n := p.stale.Load()
	for _, l := range p.loaders {
		n += l.usage.Load().GetStaleRefused()
	}
	for _, c := range p.constructors {
		n += c.usage.Load().GetStaleRefused()
	}
	return n
}

// logLost is the error of an event by which the log says that another planner took it over. That is
// no failure of the job: nobody hears of it from this planner, and all go on with the other one.
func logLost(ev control.Event) (err error) {
	switch ev := ev.(type) {
	case control.LogOpened:
		err = ev.Err
	case control.LogRead:
		err = ev.Err
	case control.Persisted:
		err = ev.Err
	}
	if errors.Is(err, checkpoint.ErrDeposed) {
		return err
	}
	return nil
}
