package client

import (
	"context"
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
)

// acks tells the service how far the trainer of a client that reads ahead is, where no
// request for a step says so in time. Its goroutine makes one call at a time: of the
// positions that come meanwhile only the newest is sent. A client that does not read ahead
// says how far it is with each request.
type acks struct {
	rose    chan struct{}   // of one: there is a newer position
	open    context.Context // until close: then a call that is lost is not made again
	shut    context.CancelFunc
	calls   context.Context // of the calls
	cancel  context.CancelFunc
	stopped chan struct{}
}

func (c *Client) startAcks() *acks {
	a := &acks{rose: make(chan struct{}, 1), stopped: make(chan struct{})}
	a.open, a.shut = context.WithCancel(context.Background())
	a.calls, a.cancel = context.WithCancel(context.Background())
	go a.run(c, c.position.Load())
	return a
}

func (a *acks) run(c *Client, told int64) {
	defer close(a.stopped)
	for a.open.Err() == nil {
		select {
		case <-a.rose:
		case <-a.open.Done():
		}
		if position := c.position.Load(); position > told && !a.takenAlong(c, position) {
			told = a.send(c, told)
		}
	}
}

// takenAlong waits a moment for a request that takes a position along. The last position is
// sent in any case: nobody looks whether that request arrived.
func (a *acks) takenAlong(c *Client, position int64) bool {
	delay := time.NewTimer(ackDelay)
	defer delay.Stop()
	select {
	case <-delay.C:
		return c.carried.Load() >= position
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
// service knows by now. A refusal is left to the next request for a step, which meets it too.
func (a *acks) send(c *Client, told int64) int64 {
	for pauses := (rpc.Backoff{Name: c.opts.Rank.String()}); ; {
		position, last := c.position.Load(), a.open.Err() != nil
		err := c.ack(a.calls, position)
		if err == nil {
			return position
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
		Identity: at.reply.Identity, Generation: at.reply.Generation, Acked: uint64(position), Rank: c.opts.Rank.wire(), Join: at.reply.Join, Epoch: c.session.epochs.Highest(),
	})
	return rpc.FromStatus(err)
}
