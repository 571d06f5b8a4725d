package client

import (
	"context"
	"errors"
)

// maxPrefetch is more steps than any rank has memory for.
const maxPrefetch = 1024

// reader keeps steps ready for Next. Its goroutine receives one after the other, and may wait
// for one that the service plans once the trainer is done with an earlier one: the trainer says so
// on the stream, acks where there is none. It
// asks for as long as it takes: only the trainer's own wait has limits.
type reader struct {
	steps   chan result
	stop    context.CancelFunc
	stopped chan struct{}
}

type result struct {
	batch *Batch
	err   error
}

// readAhead starts a reader that keeps depth steps ready.
func (c *Client) readAhead(depth int) *reader {
	ctx, cancel := context.WithCancel(context.Background())
	r := &reader{steps: make(chan result, depth), stop: cancel, stopped: make(chan struct{})}
	go r.run(ctx, c, c.next)
	return r
}

func (r *reader) run(ctx context.Context, c *Client, step int64) {
	defer close(r.stopped)
	for ; ; step++ {
		b, err := c.fetch(ctx, step, c.fetchOnce)
		if _, moved := errors.AsType[*MovedError](err); moved {
			c.acks.refuse(err) // the trainer hears it before it has used up what was read ahead
		}
		select {
		case r.steps <- result{b, err}:
		case <-ctx.Done():
			b.unshare()
			return
		}
		if err != nil {
			return
		}
	}
}

// ready is the next step, if it is there.
func (r *reader) ready() (next result, ok bool) {
	select {
	case next = <-r.steps:
		return next, true
	default:
		return next, false
	}
}

// take waits for the next step; ok is false if ctx ended before it came.
func (r *reader) take(ctx context.Context) (next result, ok bool) {
	select {
	case next = <-r.steps:
		return next, true
	case <-ctx.Done():
		return next, false
	}
}

// close ends the reader. Batches that nobody took hold no memory of the constructor's any more.
func (r *reader) close() {
	r.stop()
	<-r.stopped
	for next, ok := r.ready(); ok; next, ok = r.ready() {
		next.batch.unshare()
	}
}
