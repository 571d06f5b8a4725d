package constructor

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/constructor/deliver"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/memory"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// line is what a rank is served on: a stream, or a socket of the same machine. One goroutine sends, another
// one hears.
type line interface {
	// Recv waits for what the rank says. io.EOF: it has left.
	Recv() (*pb.DeliverRequest, error)
	// hold calls wait, and tells the rank meanwhile what it waits for.
	hold(reason func() *pb.Waiting, wait func() error) error
	// send sends a rank's part of a step, and returns the size of its body.
	send(got *deliver.Step, r deliver.Rank) (size int, err error)
	// arrived says that the rank had a body of a size a time after it began to go.
	arrived(size int, took time.Duration)
	// finish sends the table of a step that does not exist.
	finish(head []byte) error
	// way is how the last body went.
	way() deliver.Way
}

// stream is a rank's line over gRPC.
type stream struct {
	grpc.BidiStreamingServer[pb.DeliverRequest, pb.Frame]
	c      *Constructor
	copies bool   // as DeliverRequest has it
	why    string // it is no line in shared memory, as far as the rank says
	pace   *rpc.Pace
}

func (s stream) way() deliver.Way { return deliver.Way{Name: deliver.Stream, Reason: s.why} }

func (s stream) hold(reason func() *pb.Waiting, wait func() error) error {
	return rpc.HoldPart(s.BidiStreamingServer, s.c.steps.Fetchers(), reason, wait)
}

func (s stream) send(got *deliver.Step, r deliver.Rank) (int, error) {
	table, body, done, err := s.c.bodyOf(got, r, s.copies)
	if err != nil {
		return 0, err
	}
	head, err := table.Append(nil)
	if err != nil {
		return 0, err
	}
	size := len(body) // done gives body to another one
	return size, sendPart(s.BidiStreamingServer, s.pace, head, body, done)
}

func (s stream) arrived(size int, took time.Duration) { s.pace.Arrived(size, took) }

func (s stream) finish(head []byte) error {
	return sendPart(s.BidiStreamingServer, s.pace, head, nil, nil)
}

// delivery serves a rank on its line: its steps go down as far as it has room for them, and how far it is
// comes up. Two goroutines serve it: that of the call sends, the other one hears.
type delivery struct {
	c      *Constructor
	line   line
	caller deliver.Caller
	next   uint64 // to be sent

	sent         sent // a step that the rank is not done with
	acked, until atomic.Uint64
	ackedAt      atomic.Pointer[time.Time] // when acked rose last, or later than it did
	waited       atomic.Uint64             // as deliver.Caller has it
	unheard      atomic.Bool               // acked was refused as lost: the job is being moved
	nudge        chan struct{}             // of one: until rose, or unheard was set
	end          context.CancelCauseFunc
}

// sent is a step that was sent.
type sent struct {
	step  uint64
	size  int // of its body; 0: there is none
	begun time.Time
}

// errLeft is the end of a line whose rank sends no more.
var errLeft = errors.New("the rank has left")

// ackAgain is how long a line on which nothing else is to be done waits before a position that
// was not taken is said again: a job is moved in less.
const ackAgain = 100 * time.Millisecond

// Deliver implements the Constructor service. It ends with the first error, which the rank meets
// as that of its request.
func (c *Constructor) Deliver(s grpc.BidiStreamingServer[pb.DeliverRequest, pb.Frame]) error {
	hello, err := s.Recv()
	if err == nil {
		err = rpc.SaysWaiting(s, c.steps.Fetchers())
	}
	if err != nil {
		return err
	}
	if hello.Unshared != "" {
		c.sharing.void(deliver.RankOf(hello.Rank), hello.Join)
	}
	if err := c.deliver(s.Context(), hello, stream{s, c, hello.Copies, hello.Unshared, &rpc.Pace{}}); err != nil {
		return refusal(err)
	}
	return nil
}

// rankBytes are what a rank takes beside its steps: stacks of its connections, what gRPC keeps of them, and buffers while
// all ranks are sent to at once.
const rankBytes = 96 << 10

// deliver serves a rank until it leaves, or an error ends its line. Whoever calls it ends Recv then.
func (c *Constructor) deliver(ctx context.Context, hello *pb.DeliverRequest, on line) error {
	d := &delivery{c: c, line: on, next: hello.Step, nudge: make(chan struct{}, 1)}
	d.caller = deliver.Caller{Rank: deliver.RankOf(hello.Rank), Generation: hello.Generation, Join: hello.Join, Identity: hello.Identity, Waited: hello.WaitedUs, Now: &d.acked}
	ctx, leave, err := c.steps.Attend(ctx, d.caller.Rank, on.way())
	if err != nil {
		return err
	}
	defer leave()
	memory.Clients(rankBytes)
	defer memory.Clients(-rankBytes)
	ctx, d.end = context.WithCancelCause(ctx)
	defer d.end(nil)
	d.note(hello)
	c.hearing.Go(d.hear)
	for {
		err := d.granted(ctx)
		if err == nil {
			err = d.send(ctx)
		}
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, errLeft):
			return nil
		case err != nil && cause != nil:
			return cause
		case err != nil:
			return err
		}
	}
}

// hear takes what the rank says until it says no more.
func (d *delivery) hear() {
	for {
		m, err := d.line.Recv()
		if errors.Is(err, io.EOF) {
			err = errLeft
		}
		if err != nil {
			d.end(err)
			return
		}
		if err := d.take(m); err != nil {
			d.end(err)
			return
		}
	}
}

// note keeps what a message says. A rank may have heard of another planner than this constructor.
func (d *delivery) note(m *pb.DeliverRequest) {
	if d.c.steps.Serves(d.caller.Identity) {
		d.c.epochs.Hear(m.Epoch)
	}
	if m.Acked > d.acked.Load() {
		now := time.Now()
		d.ackedAt.Store(&now)
		d.acked.Store(m.Acked)
	}
	d.until.Store(max(d.until.Load(), m.Until))
	d.waited.Store(max(d.waited.Load(), m.WaitedUs))
}

// take takes a message. An error ends the line.
func (d *delivery) take(m *pb.DeliverRequest) error {
	d.note(m)
	err := d.ack()
	select {
	case d.nudge <- struct{}{}:
	default:
	}
	return err
}

// ack says how far the rank is. While the job is being moved it is said again.
func (d *delivery) ack() error {
	caller := d.caller
	caller.Acked, caller.Waited = d.acked.Load(), d.waited.Load()
	err := d.c.steps.Ack(caller)
	lost := fault.ClassOf(err) == fault.Lost && !errors.Is(err, deliver.ErrJoinAgain)
	if d.unheard.Store(lost); lost {
		return nil
	}
	return err
}

// granted waits until the rank has room for the next step.
func (d *delivery) granted(ctx context.Context) error {
	for d.next >= d.until.Load() {
		var again <-chan time.Time
		if d.unheard.Load() {
			again = time.After(ackAgain)
		}
		select {
		case <-d.nudge:
		case <-again:
			if err := d.ack(); err != nil {
				return err
			}
		case <-d.c.stopped:
			return errStopped
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return ctx.Err()
}

// send waits for the next step and sends it, or the end of the data, after which nothing comes.
func (d *delivery) send(ctx context.Context) error {
	c := d.c
	wait, cancel := context.WithTimeout(ctx, c.opts.Deadline)
	defer cancel()
	var got *deliver.Step
	var end *pb.EndOfData
	err := d.line.hold(func() *pb.Waiting { return c.steps.Waits(d.caller.Rank, d.next) }, func() (err error) {
		got, end, err = c.steps.Get(wait, d.caller, d.next)
		return err
	})
	if err != nil {
		return err
	}
	if end != nil {
		head, err := (&batch.Table{Step: d.next, End: true, Topology: end.Topology}).Append(nil)
		if err != nil {
			return err
		}
		d.next = ^uint64(0)
		return d.line.finish(head)
	}
	if d.sent.size > 0 && d.acked.Load() > d.sent.step {
		d.line.arrived(d.sent.size, d.ackedAt.Load().Sub(d.sent.begun))
		d.sent = sent{}
	}
	begun := time.Now()
	size, err := d.line.send(got, d.caller.Rank)
	if err != nil {
		return err
	}
	if d.sent.size == 0 {
		d.sent = sent{d.next, size, begun}
	}
	d.next++
	c.steps.Delivered(d.caller.Rank, d.line.way(), size)
	c.traceDelivery(d.caller.Rank, got, begun, size, d.line.way().Name)
	return nil
}
