package sourceloader

import (
	"context"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// A shadow opens all sources before any of their blocks is asked for, and a loader that joins those that it is to read: several
// at a time, beside its workers, and it says which it has open. One that cannot be opened now may be there later: it is tried
// again for as long as the loader lives, or the source would stay cold until the moment when
// ranks wait for it.

// firstAgain and lastAgain are the pauses before a source is tried again: each is twice the one
// before.
const (
	firstAgain = time.Second
	lastAgain  = 30 * time.Second
)

// openAhead opens a source and tells the planner. pause is that before the next attempt, if this
// one is lost.
func (l *Loader) openAhead(ctx context.Context, i uint32, pause time.Duration) error {
	_, err := l.source(ctx, i)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		return l.send(&pb.LoaderReport{Report: &pb.LoaderReport_Opened{Opened: &pb.SourceOpened{Source: i}}})
	case fault.ClassOf(err) != fault.Lost:
		return l.fail(ctx, err, i)
	}
	if pause == firstAgain {
		l.opts.Log.Warn("a source could not be opened ahead of time: it is tried again", "source", i, "err", err)
	}
	_, lazy := l.known(i)
	if !lazy.awaited.CompareAndSwap(false, true) {
		return nil // another planner asked for it before, and it is tried again for that one
	}
	again := time.AfterFunc(pause, func() {
		lazy.awaited.Store(false)
		l.opens.do(func(ctx context.Context) error { return l.openAhead(ctx, i, min(2*pause, lastAgain)) })
	})
	context.AfterFunc(ctx, func() { again.Stop() })
	return nil
}
