package deliver

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/millrace-data/millrace/internal/fault"
)

// Limits of the requests that wait: each holds some 40 KiB.
const (
	maxWaitingOfRank = 16   // a client has one or two, and those of a connection that broke
	maxWaiting       = 8192 // of all ranks: two of each of 4096
)

// maxAhead bounds what a rank may ask for where the planner does not say how far it plans: no
// job plans further.
const maxAhead = 1 << 20

// furthest is the last step that a rank may ask for: no step beyond the slowest rank's and ahead
// is planned, and a client reads as many ahead at most. A rank that was taken along may be further
// than that, and goes on from where it was. The lock is held.
func (s *Steps) furthest(r Rank) uint64 {
	ahead := uint64(s.job.Ahead)
	if ahead == 0 {
		ahead = maxAhead
	}
	return max(s.base+ahead, s.stood[r]) + ahead + 1
}

// errReplaced ends the oldest of a rank's requests.
var errReplaced = fault.Userf("a rank has at most %d requests waiting (limit max_waiting_of_rank), and this one was the oldest: wait for an answer before you ask again", maxWaitingOfRank)

// waiters are the requests that wait. The zero value is ready; it is safe for concurrent use.
type waiters struct {
	mu  sync.Mutex // guards the fields below
	all int
	of  map[Rank][]*waiter // by age
}

type waiter struct{ cancel context.CancelCauseFunc }

// enter notes a request of a rank until leave is called. If the rank has too many, its oldest
// one ends, with errReplaced as its context's cause.
func (w *waiters) enter(ctx context.Context, r Rank) (_ context.Context, leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.of[r]
	if len(of) >= maxWaitingOfRank {
		of[0].cancel(errReplaced)
		of = of[1:]
		w.all--
	} else if w.all >= maxWaiting {
		return nil, nil, fault.As(fault.Lost, fmt.Errorf("%d requests wait here, which is the limit max_waiting: try again later", w.all))
	}
	if w.of == nil {
		w.of = map[Rank][]*waiter{}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	own := &waiter{cancel}
	w.of[r] = append(of, own)
	w.all++
	return ctx, func() { w.leave(r, own) }, nil
}

func (w *waiters) leave(r Rank, own *waiter) {
	own.cancel(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.of[r], own)
	if i < 0 {
		return // it was replaced
	}
	w.all--
	if w.of[r] = slices.Delete(w.of[r], i, i+1); len(w.of[r]) == 0 {
		delete(w.of, r)
	}
}
