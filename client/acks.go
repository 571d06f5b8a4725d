package client

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

const (
	// ackDeadline is of one call, whose answer waits for nothing. If a constructor is silent for
	// that long, the next call goes to the one that serves the rank by then.
	ackDeadline = time.Second
	lastAck     = 5 * time.Second // that Close waits for the last one

	// ackDelay is how long a position may wait for the next request for a step, which takes
	// it along for nothing. A request that itself waits for the position waits that much longer.
	ackDelay = 2 * time.Millisecond

	// refusedEvery is the time between two words of a rank that is refused, and so cannot go on:
	// a constructor that hears nothing for 15 s takes it for one that is about to be restarted.
	refusedEvery = 5 * time.Second
)

// acks tells the service how far the trainer of a client that reads ahead is, where no
// request for a step says so in time. Its goroutine makes one call at a time: of the
// positions that come meanwhile only the newest is sent. A client that does not read ahead
// says how far it is with each request.
type acks struct {
	rank              string
	position, carried *atomic.Int64 // of the client
	leaving           *atomic.Bool
	call              func(ctx context.Context, position int64) error

	rose    chan struct{}   // of one: there is a newer position
	open    context.Context // until close: then a call that is lost is not made again
	shut    context.CancelFunc
	calls   context.Context // of the calls
	cancel  context.CancelFunc
	stopped chan struct{}
	refused atomic.Pointer[error] // why the rank cannot go on; nil while it can
}

func (a *acks) start() {
	a.rose, a.stopped = make(chan struct{}, 1), make(chan struct{})
	a.open, a.shut = context.WithCancel(context.Background())
	a.calls, a.cancel = context.WithCancel(context.Background())
	go a.run(a.position.Load())
}

func (a *acks) run(told int64) {
	defer close(a.stopped)
	for a.open.Err() == nil && a.refused.Load() == nil {
		select {
		case <-a.rose:
			if position := a.position.Load(); position > told && !a.takenAlong(position) {
				told = a.send(told)
			}
		case <-a.open.Done():
		}
	}
	if a.refused.Load() == nil && (a.position.Load() > told || a.leaving.Load()) {
		a.send(told) // in any case: nobody looks whether a request that took it along arrived
	}
	a.insist()
}

// refuse notes that the rank cannot go on. The first reason stands.
func (a *acks) refuse(err error) {
	a.refused.CompareAndSwap(nil, &err)
	a.notify()
}

// insist says again and again that a rank that is refused is still there: others wait for it, and
// hear why.
func (a *acks) insist() {
	again := time.NewTicker(refusedEvery)
	defer again.Stop()
	for a.open.Err() == nil {
		select {
		case <-again.C:
			_ = a.call(a.calls, a.position.Load()) // it is refused, or lost
		case <-a.open.Done():
		}
	}
}

// refusal is why a rank cannot go on, if its service has said so.
func (c *Client) refusal() error {
	if c.acks != nil {
		if err := c.acks.refused.Load(); err != nil {
			return *err
		}
	}
	return nil
}

// takenAlong waits a moment for a request that takes a position along.
func (a *acks) takenAlong(position int64) bool {
	delay := time.NewTimer(ackDelay)
	defer delay.Stop()
	select {
	case <-delay.C:
		return a.carried.Load() >= position
	case <-a.open.Done():
		return false
	}
}

// notify has the newest position sent.
func (a *acks) notify() {
	select {
	case a.rose <- struct{}{}:
	default:
	}
}

// send acknowledges the newest position, again while calls are lost, and returns what the
// service knows by now. That the job was moved without this rank, the trainer's next call says, or
// the one that waits. Any other refusal is left to the next request for a step, which meets it too.
func (a *acks) send(told int64) int64 {
	for pauses := (rpc.Backoff{Name: a.rank}); ; {
		position, last := a.position.Load(), a.open.Err() != nil
		err := a.call(a.calls, position)
		if err == nil {
			return position
		}
		if rpc.Moved(err) {
			err = fault.As(fault.User, fmt.Errorf("step %d of %s: %w", position, a.rank, moved(err)))
			a.refuse(err)
		}
		if fault.ClassOf(err) != fault.Lost || last {
			return told
		}
		_ = pauses.Wait(a.open) // if it ends, there is one more attempt
	}
}

// close sends the last position, if it was not sent, and ends.
func (a *acks) close() {
	a.shut()
	defer time.AfterFunc(lastAck, a.cancel).Stop()
	<-a.stopped
	a.cancel()
}

func (c *Client) ack(ctx context.Context, position int64) error {
	ctx, cancel := context.WithTimeout(ctx, ackDeadline)
	defer cancel()
	at := c.session.now()
	_, err := pb.NewConstructorClient(at.data).Ack(ctx, &pb.AckRequest{
		Identity: at.reply.Identity, Generation: at.reply.Generation, Acked: uint64(position), Rank: c.opts.Rank.wire(), Join: at.reply.Join, Epoch: c.session.epochs.Highest(), WaitedUs: c.waited.wire(), Leaves: c.leaving.Load(),
	})
	return rpc.FromStatus(err)
}
