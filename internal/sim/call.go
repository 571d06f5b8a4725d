package sim

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/rpc"
)

var codec = rpc.Codec()

// errCut is the end of a call that breaks alone.
var errCut = errors.New("the stream was reset")

// call is one call on a line. Its client's side and its server's have an end each.
type call struct {
	line    *line
	method  string
	flows   [2]*flow
	ctx     context.Context // the server's
	cancel  context.CancelFunc
	unwatch func() bool // the client's context

	arrived, clientEnded, serverEnded atomic.Bool
}

// arrive has the server begin when the first message is due.
func (c *call) arrive() {
	if !c.arrived.Swap(true) && !c.line.server.begin(c) {
		c.breakOff(errors.New("the server is closing"))
	}
}

// breakOff ends both sides, as a connection that breaks does.
func (c *call) breakOff(err error) {
	c.flows[down].fail(errBroken(err))
	c.stop()
}

// stop ends the server's side.
func (c *call) stop() {
	c.cancel()
	c.flows[up].fail(status.FromContextError(context.Canceled).Err())
	if !c.arrived.Swap(true) {
		c.endServer()
	}
}

// abandon ends the client's side; the server hears of it, if it can.
func (c *call) abandon(err error) {
	c.flows[down].fail(err)
	c.endClient()
	l := c.line
	f := l.network.draw(l.link, up, l.rngs[up])
	switch {
	case f.torn:
	case f.lost:
		l.fallQuiet()
	default:
		time.AfterFunc(time.Until(l.inOrder(up, f.due)), c.stop)
	}
}

func (c *call) endClient() {
	c.flows[up].finish()
	if c.clientEnded.Swap(true); c.serverEnded.Load() {
		c.line.end(c)
	}
}

func (c *call) endServer() {
	if c.serverEnded.Swap(true); c.clientEnded.Load() {
		c.line.end(c)
	}
}

// clientStream is the client's side of a call. It implements grpc.ClientStream.
type clientStream struct {
	call   *call
	ctx    context.Context
	one    bool // request only
	header metadata.MD
	end    error // after the last message
}

func (s *clientStream) Context() context.Context { return s.ctx }
func (s *clientStream) Trailer() metadata.MD     { return nil }

// Header waits for the header, which comes with the first message.
func (s *clientStream) Header() (metadata.MD, error) {
	if s.header == nil && s.end == nil {
		m, err := s.call.flows[down].take(s.ctx, true)
		if err != nil {
			return nil, err
		}
		s.header = m.header
	}
	return s.header, nil
}

func (s *clientStream) CloseSend() error {
	if !s.one {
		_ = s.call.line.send(s.call, up, message{last: true}) // whoever receives hears why it failed
	}
	return nil
}

// SendMsg says io.EOF of a call that has ended, or nothing if this is its request: RecvMsg says
// why it did.
func (s *clientStream) SendMsg(m any) error {
	data, err := codec.Marshal(m)
	if err != nil {
		return status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
	}
	err = s.call.flows[up].await(s.ctx)
	if err == nil {
		err = s.call.line.send(s.call, up, message{data: data, holds: true, last: s.one})
	}
	if err != nil && !s.one {
		return io.EOF
	}
	return nil
}

func (s *clientStream) RecvMsg(m any) error {
	if s.end != nil {
		return s.end
	}
	got, err := s.call.flows[down].take(s.ctx, false)
	if err != nil {
		s.finish(err)
		return err
	}
	if s.header == nil {
		s.header = got.header
	}
	if got.last {
		s.finish(cmp.Or(got.status.Err(), io.EOF))
	}
	if !got.holds {
		return s.end
	}
	return decode(got, m)
}

// finish ends the client's side.
func (s *clientStream) finish(err error) {
	s.end = err
	s.call.unwatch()
	s.call.endClient()
}

// decode decodes a message, and gives its memory back.
func decode(got message, m any) error {
	defer got.data.Free()
	if err := codec.Unmarshal(got.data, m); err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return nil
}

// serverStream is the server's side of a call. It implements grpc.ServerStream.
type serverStream struct {
	call    *call
	ctx     context.Context
	largest int // bytes of a request
	header  metadata.MD
	ended   bool // the client sends no more
}

func (s *serverStream) Context() context.Context { return s.ctx }
func (s *serverStream) SetTrailer(metadata.MD)   { panic("sim: calls carry no trailers") }

func (s *serverStream) SetHeader(md metadata.MD) error {
	s.header = metadata.Join(s.header, md)
	return nil
}

func (s *serverStream) SendHeader(metadata.MD) error { panic("sim: headers go with the first message") }

func (s *serverStream) SendMsg(m any) error {
	if err := s.ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	data, err := codec.Marshal(m)
	if err != nil {
		return status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
	}
	if err := s.call.flows[down].await(s.ctx); err != nil {
		return status.FromContextError(context.Canceled).Err()
	}
	if s.call.line.send(s.call, down, message{header: s.header, data: data, holds: true}) != nil {
		return status.Error(codes.Unavailable, "transport is closing")
	}
	return nil
}

func (s *serverStream) RecvMsg(m any) error {
	if s.ended {
		return io.EOF
	}
	got, err := s.call.flows[up].take(s.ctx, false)
	if err != nil {
		return err
	}
	s.ended = got.last
	if !got.holds {
		return io.EOF
	}
	if n := got.data.Len(); n > s.largest {
		return status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", n, s.largest)
	}
	return decode(got, m)
}

var (
	_ grpc.ClientStream = (*clientStream)(nil)
	_ grpc.ServerStream = (*serverStream)(nil)
)
