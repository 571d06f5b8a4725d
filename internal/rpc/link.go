package rpc

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// link is the way to an address. It is one connection at a time: one that fell silent may be half open, as behind a
// router that has forgotten it, and gRPC would make the next calls on it until it finds out by itself,
// after 20 s. So the link makes another one in its place, and ends all calls of the old one, which would wait as well.
type link struct {
	listener *listener
	connect  func() (Conn, error)

	mu     sync.Mutex // guards the fields below
	now    *wire
	closed bool
}

// wire is a connection of a link.
type wire struct {
	Conn
	heard  atomic.Uint64 // answers, and parts of them
	silent atomic.Bool   // another one takes its place
	since  time.Time     // the one before it, if there was one, was taken for silent then
}

// mute says for how long nothing has been heard on this connection and on those whose place it takes.
func (w *wire) mute() (silence time.Duration, is bool) {
	return time.Since(w.since).Round(100 * time.Millisecond), !w.since.IsZero() && w.heard.Load() == 0
}

// newLink returns a link with a connection that connect makes.
func newLink(address string, connect func() (Conn, error)) (*link, error) {
	conn, err := connect()
	if err != nil {
		return nil, err
	}
	return &link{listener: &listener{address: address}, connect: connect, now: &wire{Conn: conn}}, nil
}

func (l *link) wire() *wire {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// renew makes another connection in place of one.
func (l *link) renew(old *wire) {
	l.mu.Lock()
	if l.closed || l.now != old {
		l.mu.Unlock()
		return
	}
	conn, err := l.connect()
	if err == nil { // as it was before
		since := time.Now()
		if _, mute := old.mute(); mute {
			since = old.since
		}
		l.now = &wire{Conn: conn, since: since}
	}
	l.mu.Unlock()
	if err == nil {
		conn.Connect()
		old.silent.Store(true)
		_ = old.Close() // its calls end as lost
	}
}

// silent takes that a call hears nothing any more on a connection, of which heard was the last answer then. If others
// heard more since, it is not the connection.
func (l *link) silent(w *wire, heard uint64) {
	if w.heard.Load() == heard {
		l.renew(w)
	}
}

// renew makes another connection in place of one on which nothing is heard any more.
func renew(c Conn) {
	if l, ok := c.(*link); ok {
		l.renew(l.wire())
	}
}

// errNotPrompt is the cause of the end of a context of Prompt whose time is over.
var errNotPrompt = errors.New("no answer, though it waits for nothing")

// Prompt returns a context for a call whose answer waits for nothing: without one within some time its connection
// counts as silent, unless others hear something on it. Where ctx ends before, that says nothing of the connection.
func Prompt(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, within, errNotPrompt)
}

// Invoke implements grpc.ClientConnInterface.
func (l *link) Invoke(ctx context.Context, method string, request, reply any, opts ...grpc.CallOption) error {
	w := l.wire()
	heard, ready := w.heard.Load(), w.GetState() == connectivity.Ready
	err := w.Conn.Invoke(ctx, method, request, reply, opts...)
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		if ready && errors.Is(context.Cause(ctx), errNotPrompt) {
			l.silent(w, heard)
		}
	case codes.Unavailable, codes.Canceled:
	default:
		w.heard.Add(1)
	}
	return l.listener.explain(w, err)
}

// NewStream implements grpc.ClientConnInterface.
func (l *link) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	w := l.wire()
	if slices.Contains(dataCalls, method) {
		return l.stream(ctx, w, desc, method, opts...)
	}
	stream, err := w.NewStream(ctx, desc, method, opts...)
	if err != nil {
		return nil, l.listener.explain(w, err)
	}
	return &otherStream{stream, l.listener, w}, nil
}

// otherStream is a call that is not for data.
type otherStream struct {
	grpc.ClientStream
	listener *listener
	wire     *wire
}

// RecvMsg receives a message.
func (s *otherStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil {
		s.wire.heard.Add(1)
	}
	return s.listener.explain(s.wire, err)
}

// Close implements Conn.
func (l *link) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	return l.now.Close()
}

// Connect implements Conn.
func (l *link) Connect() { l.wire().Connect() }

// GetState implements Conn.
func (l *link) GetState() connectivity.State { return l.wire().GetState() }

// WaitForStateChange implements Conn. A connection that is replaced has changed.
func (l *link) WaitForStateChange(ctx context.Context, from connectivity.State) bool {
	return l.wire().WaitForStateChange(ctx, from)
}

// ResetConnectBackoff implements Conn.
func (l *link) ResetConnectBackoff() { l.wire().ResetConnectBackoff() }
