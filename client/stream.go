package client

import (
	"context"
	"errors"
	"io"
	"math"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// Way is how batches come. It decides no byte of them.
type Way string

const (
	// WayShared is memory that the constructor and the rank map, both on one machine and of one user, or the socket between
	// them while there is no such memory.
	WayShared Way = "shared"
	// WayStream is one stream for all steps, on which the rank says how far it is.
	WayStream Way = "stream"
	// WayCalls is a call for each step, as with services that know no streams.
	WayCalls Way = "calls"
)

// line is what a rank is served on.
type line interface {
	// tell says how far the rank is. Any goroutine may.
	tell(m *pb.DeliverRequest) error
	// receive waits for the next step, for which m is memory. One goroutine does.
	receive(sources []string, m *memory) (*Batch, error)
	// end has receive fail. Any goroutine may call it, and again.
	end()
	// drop is end, for whoever receives: nothing more is received.
	drop()
}

// stream is a rank's line with the constructor that it joined: steps come in order as far as
// the client has room for them, without being asked for one by one. One goroutine receives;
// the trainer's says how far it is.
type stream struct {
	line
	at   *joined
	next atomic.Int64 // step that comes next
}

// owed says whether the constructor has to say something.
func (c *Client) owed(s *stream) bool { return s.next.Load() < c.until.Load() }

// call is a line over gRPC.
type call struct {
	stream grpc.BidiStreamingClient[pb.DeliverRequest, pb.Frame]
	sender *rpc.Sender[*pb.DeliverRequest]
	cancel context.CancelFunc
}

func (l *call) tell(m *pb.DeliverRequest) error { return l.sender.Send(m) }
func (l *call) end()                            { l.cancel() }
func (l *call) drop()                           { l.cancel() }
func (l *call) receive(sources []string, m *memory) (*Batch, error) {
	return receivePart(l.stream, sources, m)
}

// fetchOnce gets the next step once, where the rank has joined: on its stream, if the constructor
// knows streams.
func (c *Client) fetchOnce(ctx context.Context, at *joined, step int64) (*Batch, error) {
	if c.opts.Way == WayCalls || at.calls.Load() {
		return c.callFor(ctx, at, step)
	}
	b, err := c.streamFor(ctx, at, step)
	switch {
	case !rpc.Unknown(err):
		return b, err
	case c.opts.Way != "": // not for a retry, as an answer of another service would be
		return nil, fault.Userf("the constructor gives no stream, which way %s takes: it is older (%v)", c.opts.Way, err)
	}
	at.calls.Store(true)
	return c.callFor(ctx, at, step)
}

// streamFor waits for a step on the stream. After an error, which ends it, and for another step
// than the next one it begins another stream.
func (c *Client) streamFor(ctx context.Context, at *joined, step int64) (b *Batch, err error) {
	s := c.stream.Load()
	switch {
	case s == nil || s.at != at || s.next.Load() != step:
		c.dropStream()
		if s, err = c.openStream(ctx, at, step); err != nil {
			return nil, err
		}
	case c.depth() == 0:
		c.tell()
	}
	defer context.AfterFunc(ctx, s.end)()
	b, err = s.receive(at.reply.Sources, c.spare())
	if _, changes := errors.AsType[*TopologyError](err); changes || errors.Is(err, io.EOF) {
		s.next.Store(math.MaxInt64) // nothing is owed any more
		return nil, err
	}
	if err != nil {
		c.dropStream()
		return nil, err
	}
	s.next.Store(step + 1)
	b.home = c.spares
	c.session.wentAlong(at, b.generation, step)
	return b, nil
}

// openStream begins a stream at a step: in shared memory, unless that is not possible.
func (c *Client) openStream(ctx context.Context, at *joined, step int64) (*stream, error) {
	s := &stream{at: at}
	s.next.Store(step)
	hello := c.where()
	hello.Step, hello.Identity, hello.Generation = uint64(step), at.reply.Identity, at.reply.Generation
	hello.Rank, hello.Join, hello.Copies = c.opts.Rank.wire(), at.reply.Join, true
	if err := c.openLine(ctx, s, hello); err != nil {
		return nil, err
	}
	c.carried.Store(int64(hello.Acked))
	c.stream.Store(s)
	if now := c.where(); now.Acked > hello.Acked || now.Until > hello.Until {
		c.tell() // the trainer, which went on, may have found no stream
	}
	return s, nil
}

// openLine opens the best line that is possible.
func (c *Client) openLine(ctx context.Context, s *stream, hello *pb.DeliverRequest) error {
	if c.opts.Way == "" && s.at.unshared.Load() == nil || c.opts.Way == WayShared {
		err := c.openShared(ctx, s, hello)
		why, unshared := errors.AsType[*unsharedError](err)
		if !unshared {
			return err
		}
		if c.opts.Way == WayShared {
			return fault.Userf("Options.Way is %q, and %s: leave it out to have the best that is possible", WayShared, why.reason)
		}
		c.without(s.at, why.reason)
	}
	if why := s.at.unshared.Load(); why != nil {
		hello.Unshared = *why
	}
	life := rpc.Owing(context.Background(), func() bool { return c.owed(s) })
	life, cancel := context.WithCancel(c.hearing(life, s.at.reply.Constructor))
	defer context.AfterFunc(ctx, cancel)()
	opened, err := pb.NewConstructorClient(s.at.data).Deliver(life)
	if err == nil {
		l := &call{opened, rpc.NewSender(opened.Send), cancel}
		s.line, err = l, l.tell(hello)
	}
	if err != nil {
		cancel()
	}
	return rpc.FromStatus(err)
}

// where is how far the trainer is, and how much may come.
func (c *Client) where() *pb.DeliverRequest {
	return &pb.DeliverRequest{Acked: uint64(c.position.Load()), Until: uint64(c.until.Load()), Epoch: c.session.epochs.Highest(), WaitedUs: c.waited.wire()}
}

// tell says on the stream how far the trainer is. It returns false if there is none. On a stream
// that has ended it does nothing: the next one begins with that.
func (c *Client) tell() bool {
	s := c.stream.Load()
	if s == nil {
		return false
	}
	m := c.where()
	if s.line.tell(m) != nil {
		return false
	}
	c.carried.Store(int64(m.Acked))
	return true
}

// dropStream ends the stream. It is called by the goroutine that receives, or after that has ended.
func (c *Client) dropStream() {
	if s := c.stream.Swap(nil); s != nil {
		s.drop()
	}
}

// hear takes what a constructor says that it waits for.
func (c *Client) hear(address string, w *pb.Waiting) {
	c.progress.hear("the constructor at "+address, w)
}

// sayEvery is the time after which a rank that still receives a step says again how far it is, and that it waits. A
// constructor that hears nothing for long takes its rank for gone, and what it asks may be stuck behind the step.
const sayEvery = 2 * time.Second

// hearing is the context of a call for data to a constructor, of which every word and every piece counts.
func (c *Client) hearing(ctx context.Context, address string) context.Context {
	who, said := "the constructor at "+address, time.Now()
	return rpc.Coming(rpc.Telling(ctx, c.hear), func(have int, of uint64) {
		c.progress.came(who, have, of)
		if uint64(have) < of && time.Since(said) > sayEvery {
			said = time.Now()
			c.tell()
		}
	})
}

// spare is memory for a batch: that of one that was released, if there is any.
func (c *Client) spare() *memory {
	select {
	case m := <-c.spares:
		c.releases.Store(true)
		return m
	default:
		return &memory{}
	}
}

// callFor asks for a step by a call of its own, where the rank has joined.
func (c *Client) callFor(ctx context.Context, at *joined, step int64) (*Batch, error) {
	position := c.position.Load()
	call, err := pb.NewConstructorClient(at.data).Batch(c.hearing(ctx, at.reply.Constructor), &pb.BatchRequest{
		Identity: at.reply.Identity, Generation: at.reply.Generation,
		Step: uint64(step), Acked: uint64(position), Rank: c.opts.Rank.wire(), Join: at.reply.Join, Hears: true, Epoch: c.session.epochs.Highest(), WaitedUs: c.waited.wire(),
	})
	if err != nil {
		return nil, rpc.FromStatus(err)
	}
	c.carried.Store(position)
	b, err := receive(call, at.reply.Sources, c.spare())
	if err != nil {
		return nil, err
	}
	b.home = c.spares
	c.session.wentAlong(at, b.generation, step)
	return b, nil
}
