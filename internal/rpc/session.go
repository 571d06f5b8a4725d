package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// leaveTime is how long a role that stops waits for the planner to take leave of it.
const leaveTime = time.Second

// Session is the client's side of a stream that lives as long as a role. When the role
// stops, the stream ends in order: the other side reads io.EOF, and so knows that
// nothing was lost. Sending is safe for concurrent use, receiving is for one goroutine.
type Session[Q, R any] struct {
	*Sender[*Q]
	stream grpc.BidiStreamingClient[Q, R]
	cut    context.CancelFunc
	stop   func() bool
}

// openEvery is the pause before a server that is not there is looked for again.
const openEvery = 200 * time.Millisecond

// wordEvery is how often it is said that a role waits for its server: seldom enough
// that a night without a planner is a page of log.
const wordEvery = 30 * time.Second

// OpenSession waits until there is a server and begins a session that ctx ends. While
// there is none, waiting is told why, at once and then now and then.
func OpenSession[Q, R any](ctx context.Context, open func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[Q, R], error), waiting func(error)) (*Session[Q, R], error) {
	life, cut := context.WithCancel(context.WithoutCancel(ctx))
	early := context.AfterFunc(ctx, cut)
	var said time.Time
	stream, err := open(life)
	for status.Code(err) == codes.Unavailable && ctx.Err() == nil {
		if time.Since(said) > wordEvery {
			said = time.Now()
			waiting(FromStatus(err))
		}
		select {
		case <-time.After(openEvery):
		case <-ctx.Done():
		}
		stream, err = open(life)
	}
	if err != nil {
		cut()
		return nil, err
	}
	early()
	s := &Session[Q, R]{Sender: NewSender(stream.Send), stream: stream, cut: cut}
	s.stop = context.AfterFunc(ctx, s.leave)
	return s, nil
}

// leave ends the sending side. The other side ends the stream then; if it does not, the
// stream is cut.
func (s *Session[Q, R]) leave() {
	late := time.AfterFunc(leaveTime, s.cut)
	context.AfterFunc(s.stream.Context(), func() { late.Stop() })
	s.finish(s.stream.CloseSend)
}

// Recv waits for a message; io.EOF says that the other side is done.
func (s *Session[Q, R]) Recv() (*R, error) { return s.stream.Recv() }

// Close frees what the session holds, and cuts the stream if it goes on.
func (s *Session[Q, R]) Close() {
	s.stop()
	s.cut()
}
