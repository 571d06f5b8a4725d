package client

import (
	"sync"
	"time"
)

// waited is how long the trainer stood still in Next, its first batch left out, and the wait under way included: who tells the
// service of it meanwhile tells that the rank starves. It is safe for concurrent use.
type waited struct {
	mu    sync.Mutex // guards the fields below
	over  time.Duration
	since time.Time // zero: no wait is under way
}

func (w *waited) begin(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = now
}

func (w *waited) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over, w.since = w.now(), time.Time{}
}

// now is all of it. The lock is held.
func (w *waited) now() time.Duration {
	if w.since.IsZero() {
		return w.over
	}
	return w.over + time.Since(w.since)
}

// wire is what requests say of it: microseconds, plus 1, since 0 says nothing.
func (w *waited) wire() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return uint64(w.now().Microseconds()) + 1
}
