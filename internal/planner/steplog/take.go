package steplog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/failpoint"
	"github.com/millrace-data/millrace/internal/fault"
)

// Taken is the log that a planner found when it began.
type Taken struct {
	log      checkpoint.Log // nil if there is none
	identity [32]byte       // of the log
	Epoch    uint64         // of this planner; 0 without a log, and with one that cannot be opened
	Failed   error          // why the log that is there cannot be opened, and cannot either when it is tried again
}

// standbyEvery is how often a planner that stands by looks whether the log is free.
const standbyEvery = 50 * time.Millisecond

// lostPause is the time between two tries of a planner that stands by, of which the first gave an error of class fault.Lost:
// who writes the log, or another that stands by, may come in between, and ranks wait for far longer.
const lostPause = 2 * time.Second

// Take opens the log of an earlier life, if there is one, and raises its epoch. A planner that
// stands by waits until it is free, and until it can be read and written. Any other one is to tell
// its ranks what is wrong with a log that is damaged, or another version's; where the log cannot be
// reached now, or is in use, Take fails, and the planner may be started again.
func Take(ctx context.Context, opts *Options) (t Taken, err error) {
	if opts.Dir == "" {
		return t, nil
	}
	waits := false
	err = opts.outlast(ctx, func() error {
		for ctx.Err() == nil {
			again, err := t.tryTake(ctx, opts)
			if !again || err != nil {
				return err
			}
			if !waits && opts.Mirror == "" { // of a mirror it was said before
				opts.Logger.Info("standing by: this planner serves when there is a log that no other planner has open", "log", opts.Dir)
			}
			waits = true
			select {
			case <-time.After(standbyEvery):
			case <-ctx.Done():
			}
		}
		return nil
	})
	return t, err
}

// errNotReady is wrapped by what Options.Ready says.
var errNotReady = errors.New("it could not serve")

// outlast calls try until it gives no error that may pass, or ctx ends, if this planner stands by: who stands by is
// there for a disk or a store that fails, which may fail this planner, too, and come back. Any other planner ends at once.
// So does one that stands by for a log in a folder that is another job's, as it would lock that one for its own planners.
// The first error is a warning; the ones after it are mostly the same.
func (o *Options) outlast(ctx context.Context, try func() error) error {
	level := slog.LevelWarn
	for {
		err := try()
		passes := fault.ClassOf(err) == fault.Lost || errors.Is(err, errNotReady) || o.Mirror != "" && errors.Is(err, errOtherJob)
		if !o.Standby || !passes {
			return err
		}
		if ctx.Err() != nil {
			return nil // it stood by until it was stopped
		}
		o.Logger.Log(ctx, level, "this planner cannot take over now: it goes on standing by, and tries again", "log", o.Dir, "mirror", o.Mirror, "err", err)
		level = slog.LevelInfo
		select {
		case <-time.After(lostPause):
		case <-ctx.Done():
		}
	}
}

// tryTake is an attempt of Take; again is true while another planner has the log, or was faster
// to take it, and this one stands by; and if somebody wrote the mirror since it was found to be free.
func (t *Taken) tryTake(ctx context.Context, opts *Options) (again bool, err error) {
	head := uint64(0) // the slot of the mirror that came next
	if opts.Mirror != "" {
		if head, err = opts.awaitMirror(ctx); err != nil || ctx.Err() != nil {
			return false, err
		}
	}
	if err := opts.ready(); err != nil {
		return false, err
	}
	t.log, t.identity, err = opts.resumeLog(ctx)
	if t.log == nil && opts.Standby && (err == nil || errors.Is(err, checkpoint.ErrInUse)) {
		return true, nil
	}
	if t.log == nil {
		if opts.Standby || errors.Is(err, checkpoint.ErrInUse) || errors.Is(err, errOtherJob) || fault.ClassOf(err) == fault.Lost {
			return false, err
		}
		if err == nil {
			t.Epoch = 1 // of the log that is to begin
		}
		t.Failed = err
		return false, nil
	}
	if at, _ := t.log.Place(); opts.Mirror != "" && at.Slot != head {
		opts.Logger.Info("the log goes on: somebody wrote it since it was found to be free", "epoch", t.log.Epoch())
		err = t.log.Close()
		*t = Taken{}
		return err == nil, err
	}
	return t.raise(opts)
}

// raise raises the epoch of the log, which ends the planner that wrote it, if it is still there; again is that of tryTake.
func (t *Taken) raise(opts *Options) (again bool, err error) {
	if err := opts.open(); err != nil {
		err = errors.Join(err, t.log.Close())
		*t = Taken{}
		return false, err
	}
	t.Epoch = t.log.Epoch() + 1
	failpoint.Hit(failpoint.FenceBefore)
	if err = t.log.Fence(t.Epoch); err == nil {
		failpoint.Hit(failpoint.FenceAfter)
		return false, nil
	}
	if opts.Shut != nil {
		opts.Shut()
	}
	faster, stopped := errors.Is(err, checkpoint.ErrOrder), t.log.Err() != nil
	err = fmt.Errorf("raising the epoch of the log: %w", err)
	if closed := t.log.Close(); !stopped { // else it says the same again
		err = errors.Join(err, closed)
	}
	*t = Taken{}
	if faster && opts.Standby {
		opts.Logger.Info("another planner took over first", "err", err)
		return true, nil
	} else if faster {
		err = fault.As(fault.Lost, fmt.Errorf("another planner took over while this one started: %w", err))
	}
	return false, err
}

// ready says why a planner that stands by could not serve now.
func (o *Options) ready() error {
	if !o.Standby || o.Ready == nil {
		return nil
	}
	if err := o.Ready(); err != nil {
		return fault.Userf("%w: %w", errNotReady, err)
	}
	return nil
}

// open opens the planner's address. What ready said is a moment ago, in which the log was read.
func (o *Options) open() error {
	if o.Open == nil {
		return nil
	}
	err := o.Open()
	if err != nil && o.Standby {
		return fault.Userf("%w: %w", errNotReady, err)
	}
	return err
}

// Resumes says whether the log has steps.
func (t *Taken) Resumes() bool {
	if t.log == nil {
		return false
	}
	_, some := t.log.Last()
	return some
}

// openLog opens the log of the job with this identity, which nobody writes but this planner.
func (w *Writer) openLog(root [32]byte) (checkpoint.Log, error) {
	t := &w.taken
	if t.log != nil && t.identity == root {
		return t.log, nil
	}
	if t.log != nil {
		if err := t.log.Close(); err != nil {
			return nil, err
		}
		t.log = nil
	}
	log, err := w.opts.openLog(root)
	if errors.Is(err, checkpoint.ErrInUse) { // nobody had it open when this planner started
		return nil, fault.Lostf("another planner %w the log since this one started, which ends: %w; or have this one stand by (millrace planner --standby)", checkpoint.ErrDeposed, err)
	}
	if err != nil {
		return nil, err
	}
	if err := w.fence(log); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return log, nil
}

// fence makes a log that was just opened this planner's. Another planner may have begun it since this one found none: two
// that start at once find none both.
func (w *Writer) fence(log checkpoint.Log) error {
	epoch := w.taken.Epoch
	if epoch > 0 && log.Epoch() < epoch {
		if err := log.Fence(epoch); !errors.Is(err, checkpoint.ErrOrder) {
			return err
		}
	}
	what := "log in " + w.opts.Dir
	if w.opts.Mirror != "" { // the folder may be this planner's alone
		what = "mirror " + w.opts.Mirror
	}
	return fault.Lostf("another planner (epoch %d) %w the %s since this one started: this one ends: start it again when the other one has ended, or have it stand by (millrace planner --standby)",
		log.Epoch(), checkpoint.ErrDeposed, what)
}
