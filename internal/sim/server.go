package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// drainTime is how long a server that stops waits for calls under way, as those of rpc do.
const drainTime = 4 * time.Second

// server is a server of calls. It implements rpc.Server.
type server struct {
	listener *listener
	largest  int // bytes of a request
	methods  map[string]method
	serving  chan struct{} // closed by Serve: what comes before waits
	work     chan *call    // for goroutines that have handled one: their stacks have grown already

	mu     sync.Mutex // guards the fields below, never held while waiting
	lines  map[*line]struct{}
	calls  map[*call]struct{} // whose handlers run
	closed bool
	idle   chan struct{} // closed when it is closed and none runs
}

// method is one that a server serves: one of unary and stream is set.
type method struct {
	service any
	unary   *grpc.MethodDesc
	stream  *grpc.StreamDesc
}

func newServer(l *listener, largest int) *server {
	return &server{listener: l, largest: largest, methods: map[string]method{}, serving: make(chan struct{}), work: make(chan *call), lines: map[*line]struct{}{}, calls: map[*call]struct{}{}, idle: make(chan struct{})}
}

// RegisterService implements grpc.ServiceRegistrar.
func (s *server) RegisterService(desc *grpc.ServiceDesc, service any) {
	name := func(method string) string { return fmt.Sprintf("/%s/%s", desc.ServiceName, method) }
	for i := range desc.Methods {
		m := &desc.Methods[i]
		s.methods[name(m.MethodName)] = method{service: service, unary: m}
	}
	for i := range desc.Streams {
		m := &desc.Streams[i]
		s.methods[name(m.StreamName)] = method{service: service, stream: m}
	}
}

// Serve implements rpc.Server. It returns after all handlers did.
func (s *server) Serve(ctx context.Context) error {
	close(s.serving)
	select {
	case <-ctx.Done():
	case <-s.listener.closed:
		if ctx.Err() == nil {
			s.abandon()
			return net.ErrClosed
		}
	}
	_ = s.listener.Close()
	lines := s.close()
	for _, l := range lines {
		l.conn.lose(l) // its next call looks for another server
	}
	defer time.AfterFunc(drainTime, func() {
		for _, l := range lines {
			s.listener.network.forget(l.link)
			l.fail(errStopped)
		}
	}).Stop()
	<-s.idle
	return nil
}

// Close implements rpc.Server.
func (s *server) Close() error {
	s.close()
	return s.listener.Close()
}

// abandon ends the handlers of a host that died, also those whose first message will never come.
func (s *server) abandon() {
	s.close()
	s.mu.Lock()
	calls := slices.Collect(maps.Keys(s.calls))
	s.mu.Unlock()
	for _, c := range calls {
		c.cancel()
	}
}

var errStopped = errors.New("the server has stopped")

// close has the server take no further calls. It returns its connections.
func (s *server) close() []*line {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if len(s.calls) == 0 {
		close(s.idle)
	}
	return slices.Collect(maps.Keys(s.lines))
}

func (s *server) add(l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines[l] = struct{}{}
}

func (s *server) lose(l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lines, l)
}

// begin has a handler wait for the first message of a call, and answer it.
func (s *server) begin(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.calls[c] = struct{}{}
	select {
	case s.work <- c:
	default:
		go s.handleAll(c)
	}
	return true
}

func (s *server) end(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.calls, c); len(s.calls) == 0 && s.closed {
		close(s.idle)
	}
}

// handleAll handles a call and then others, until the server is closed and none runs.
func (s *server) handleAll(c *call) {
	for {
		s.handle(c)
		select {
		case c = <-s.work:
		case <-s.idle:
			return
		}
	}
}

func (s *server) handle(c *call) {
	defer s.end(c)
	defer c.endServer()
	defer c.cancel()
	select {
	case <-s.serving:
	case <-c.ctx.Done():
	}
	if _, err := c.flows[up].take(c.ctx, true); err != nil {
		return // the call broke before it came here
	}
	m := s.answer(&serverStream{call: c, ctx: c.ctx, largest: s.largest})
	m.last = true
	_ = c.line.send(c, down, m) // of a call that broke, its client knows
}

// answer calls the method, and returns the last message of the answer.
func (s *server) answer(stream *serverStream) (m message) {
	method := s.methods[stream.call.method]
	var err error
	switch {
	case method.unary != nil:
		var reply any
		if reply, err = method.unary.Handler(method.service, stream.ctx, stream.RecvMsg, nil); err == nil {
			m.data, err = codec.Marshal(reply)
			m.holds = err == nil
		}
	case method.stream != nil:
		if method.stream.ClientStreams {
			_, err = stream.call.flows[up].take(stream.ctx, false) // what opened the call
		}
		if err == nil {
			err = method.stream.Handler(method.service, stream)
		}
	default:
		err = status.Errorf(codes.Unimplemented, "unknown method %s", stream.call.method)
	}
	var ok bool
	if m.status, ok = status.FromError(err); !ok {
		m.status = status.FromContextError(err)
	}
	m.header = stream.header
	return m
}
