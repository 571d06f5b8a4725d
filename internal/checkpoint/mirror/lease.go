package mirror

import (
	"fmt"
	"strings"
	"time"

	"github.com/millrace-data/millrace/internal/object"
)

// A lease says that a writer lives: its object gets other bytes every leaseEvery. It only
// decides who tries to take over. What keeps two writers apart are the slots.
const (
	lease      = "lease"
	leaseEvery = 250 * time.Millisecond
	// leaseTime is how long the object stays as it is until its writer is taken for dead: some
	// puts may fail or be slow. With a slow store it is longer (slowness).
	leaseTime = 1500 * time.Millisecond
	// leaseFree is the lease of a log that was closed in order, with the slot that came next. Who has
	// taken that slot writes the log, whatever the lease says of who wrote it before.
	leaseFree = "free"
)

// free says that nobody writes the log any more, so that who stands by need not wait for its time:
// unless another writer has the lease, or took the next slot.
func (l *Log) free() {
	now, err := l.store.Get(l.ctx, lease, object.Whole)
	if err == nil && strings.HasPrefix(string(now), l.prefix()) {
		_ = l.store.Put(l.ctx, lease, fmt.Appendf(nil, "%s %d", leaseFree, l.place.Slot))
	}
}

// prefix is what the lease begins with while it is this writer's.
func (l *Log) prefix() string { return fmt.Sprintf("%x ", l.writer) }

// renew renews the lease of a log that has fenced until the log ends.
func (l *Log) renew() {
	ticks := time.NewTicker(leaseEvery)
	defer ticks.Stop()
	for n := 0; ; n++ {
		select {
		case <-ticks.C:
		case <-l.stopped:
			return
		case <-l.ctx.Done():
			return
		}
		if l.leads.Load() {
			l.renewOnce(n)
			if n%countEvery == 0 {
				l.countRefused()
			}
		}
	}
}

// claim has those who stand by see that somebody writes, before there is anything that they could
// take over: one that looked before finds another slot than it saw, or loses that to this one; one
// that looks later finds the lease renewed. It is no promise, so that it may fail.
func (l *Log) claim() { _ = l.store.Put(l.ctx, lease, fmt.Append(nil, l.prefix(), "takes over")) }

// renewOnce writes the lease, unless another writer did since: it may have taken over.
func (l *Log) renewOnce(n int) {
	now, err := l.store.Get(l.ctx, lease, object.Whole)
	if n > 0 && err == nil && !strings.HasPrefix(string(now), l.prefix()) {
		l.look()
	}
	if l.Err() == nil {
		_ = l.store.Put(l.ctx, lease, fmt.Append(nil, l.prefix(), n)) // the next one says the same
	}
}

// countEvery is in how many renewals of the lease a writer counts what others were refused.
const countEvery = 4

func (l *Log) countRefused() {
	if all, err := l.store.List(l.ctx, refusals, ""); err == nil {
		l.refused.Store(max(l.refused.Load(), uint64(len(all))))
	}
}

// look stops the log if another writer has the next slot.
func (l *Log) look() {
	if l.take() != nil {
		return // it has stopped
	}
	defer l.release()
	if _, err := l.store.Stat(l.ctx, segmentName(l.place.Slot)); err == nil {
		l.stop(l.deposed(l.place.Slot))
	}
}
