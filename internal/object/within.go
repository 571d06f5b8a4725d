package object

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

const (
	// mostHung bounds the calls that were given up and have not come back, each of which has a thread: who stands by asks
	// for as long as the file system hangs. It is more than a writer of a log has in the time in which it gives up.
	mostHung = 32
	// endGrace is how long a call goes on whose caller has ended: most are a moment from their end, and who ends
	// would else leave files behind that are being written.
	endGrace = time.Second
)

// calls are those to a file system that may hang.
type calls struct {
	limit time.Duration // for one of them
	hung  atomic.Int64  // that were given up and have not come back
}

// within calls fn, which asks a file system, and gives it up with an error of class fault.Lost after as long as a request
// to a store may move nothing (watched), or soon after ctx ends. The kernel cannot be told to give a system call up: on a
// network file system whose server is away it may last for days, and whoever waited for it would neither end nor say why.
//
// What was given up may be done later, or never, just as a request whose answer was lost: the contract of Store says so of
// an error of class fault.Lost. It does no harm to a log. A PutIfAbsent that comes late creates the slot that its writer
// asked for, whole, or finds it taken: the planner that takes over takes the same slot, so that one of the two has it, and
// takes in what it finds there, which nobody knew of before. A Delete that comes late is of what nobody reads any more,
// and the names of a log are used once. A Put that comes late is of a lease, which its next writer renews, and which decides
// nothing. fn and what it uses belong to the call, as its goroutine may outlast its caller.
func within[T any](ctx context.Context, c *calls, fn func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if n := c.hung.Load(); n >= mostHung {
		return none, fault.Lostf("the file system hangs: %d calls to it have not come back", n)
	}
	done := make(chan result, 1)
	go func() {
		value, err := fn()
		done <- result{value, err}
	}()
	limit := c.limit
	if ctx.Value(patientKey{}) != nil {
		limit *= patience
	}
	timer, ended := time.NewTimer(limit), ctx.Done()
	defer timer.Stop()
	for {
		select {
		case r := <-done:
			return r.value, r.err
		case <-ended:
			ended = nil
			timer.Reset(min(limit, endGrace))
		case <-timer.C:
			c.hung.Add(1)
			go func() {
				<-done
				c.hung.Add(-1)
			}()
			if err := context.Cause(ctx); err != nil {
				return none, err
			}
			return none, fault.Lostf("the file system has not answered for %v: it hangs, or the server or disk behind it", limit)
		}
	}
}
