package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
)

// A lease says that a writer lives: its object gets other bytes every leaseEvery. It only
// decides who tries to take over. What keeps two writers apart are the slots.
const (
	lease      = "lease"
	leaseEvery = 250 * time.Millisecond
	// leaseTime is how long the object stays as it is until its writer is taken for dead: some
	// puts may fail or be slow.
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

// isFree says whether a lease says that nobody writes a log whose next slot is head. Versions before
// did not say the slot.
func isFree(lease []byte, head uint64) bool {
	return string(lease) == leaseFree || string(lease) == fmt.Sprintf("%s %d", leaseFree, head)
}

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

// CheckFree refuses a mirror that somebody writes now, from another folder or machine, with an error of class
// fault.User: its lease is being renewed. That takes up to leaseTime to see, where the lease was not given back. Who
// wrote the mirror last from this folder is gone, as the folder is locked.
func (l *Log) CheckFree(ctx context.Context) error {
	if l.latest {
		return nil
	}
	var first []byte
	for began := time.Now(); time.Since(began) <= leaseTime; {
		now, err := l.store.Get(ctx, lease, object.Whole)
		switch {
		case errors.Is(err, object.ErrNotExist):
			return nil
		case err != nil:
			return err
		case strings.HasPrefix(string(now), leaseFree): // who was first since, the next slot says
			return nil
		case first != nil && !bytes.Equal(now, first):
			return fault.Userf("the mirror %s is being written by another planner, which renews its lease: stop that one first, or have this one stand by (millrace planner --standby), so that it takes over when the other one is gone; give another job a mirror of its own", l.store)
		}
		first = now
		select {
		case <-time.After(leaseEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// AwaitFree waits until the mirror has a log whose writer does not renew its lease any more and
// writes nothing, or ctx ends. It returns the slot that came next: who finds another one there
// afterwards has to wait again, as somebody writes. Errors of the store are waited out.
func AwaitFree(ctx context.Context, s object.Store) (head uint64, err error) {
	ticks := time.NewTicker(leaseEvery)
	defer ticks.Stop()
	var last []byte
	var since time.Time // the lease is last, and the next slot is head; zero while there is no log
	for {
		now, err := s.Get(ctx, lease, object.Whole)
		if errors.Is(err, object.ErrNotExist) {
			now, err = nil, nil
		}
		there, end := false, head
		if err == nil {
			var c *content
			if c, err = list(ctx, s); err == nil && !c.empty() {
				there, end = true, c.end()
			}
		}
		if !there || since.IsZero() || !bytes.Equal(now, last) || end != head {
			last, head, since = now, end, time.Now()
		}
		if !there {
			since = time.Time{}
		} else if isFree(now, head) || time.Since(since) > leaseTime {
			return head, nil
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
