package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// renewAfter is how long a request waits before it is made again with a newer
// acknowledgement: long for an answer that is on its way, short beside a step.
const renewAfter = 20 * time.Millisecond

// reader keeps steps waiting for Next. Its goroutine asks for one after the
// other; Next takes them and says how far the trainer is.
type reader struct {
	ready   chan result
	stop    context.CancelFunc
	stopped chan struct{}

	mu    sync.Mutex // guards the fields below, never held during a call
	acked int64      // the trainer is done with all steps before it
	asked *request   // under way
}

type result struct {
	batch *Batch
	err   error
}

// request is one call for a step.
type request struct {
	acked    int64
	begin    time.Time
	cancel   context.CancelFunc
	answered atomic.Bool // the answer began to come
	renewed  bool        // cancelled, to be made again with a newer acknowledgement
}

// errRenewed ends a request that is to be made again at once.
var errRenewed = errors.New("the request is made again")

// readAhead starts a reader that keeps depth steps waiting.
func (c *Client) readAhead(depth int) *reader {
	ctx, cancel := context.WithCancel(context.Background())
	r := &reader{ready: make(chan result, depth), stop: cancel, stopped: make(chan struct{}), acked: c.next}
	go r.run(ctx, c, c.next)
	return r
}

func (r *reader) run(ctx context.Context, c *Client, step int64) {
	defer close(r.stopped)
	for ; ; step++ {
		b, err := c.fetch(ctx, step, r.position, func(ctx context.Context, at *joined) (*Batch, error) { return r.ask(ctx, c, at, step) })
		select {
		case r.ready <- result{b, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func (r *reader) ask(ctx context.Context, c *Client, at *joined, step int64) (*Batch, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	q := &request{acked: r.acked, begin: time.Now(), cancel: cancel}
	r.asked = q
	r.mu.Unlock()
	b, err := c.fetchOnce(ctx, at, step, q.acked, &q.answered)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = nil
	if err != nil && q.renewed {
		return nil, errRenewed
	}
	return b, err
}

// position is how far the trainer is.
func (r *reader) position() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.acked
}

// take waits for the next step; the trainer is done with all before acked.
func (r *reader) take(ctx context.Context, acked int64) (*Batch, error) {
	r.mu.Lock()
	r.acked = acked
	r.mu.Unlock()
	for {
		select {
		case next := <-r.ready:
			return next.batch, next.err
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(renewAfter):
			r.renew()
		}
	}
}

// renew makes a request anew that waits with an older acknowledgement: the
// service may wait for the newer one before it has room for that very step.
func (r *reader) renew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.asked
	if q == nil || q.acked == r.acked || q.answered.Load() || time.Since(q.begin) < renewAfter {
		return
	}
	q.renewed = true
	q.cancel()
}

func (r *reader) close() {
	r.stop()
	<-r.stopped
}

// noted is a stream that notes when the first frame comes.
type noted struct {
	grpc.ServerStreamingClient[pb.Frame]
	answered *atomic.Bool
}

func (n noted) RecvMsg(m any) error {
	err := n.ServerStreamingClient.RecvMsg(m)
	n.answered.Store(err == nil || n.answered.Load())
	return err
}
