package sim

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/rpc"
)

// Carrier is the network as one host sees it, which carries calls. It implements rpc.Carrier.
type Carrier struct{ host *Host }

// Carrier returns the carrier of a host's calls.
func (n *Network) Carrier(host string) *Carrier { return &Carrier{n.Host(host)} }

// Listen implements rpc.Carrier.
func (c *Carrier) Listen(address string, largest int) (rpc.Server, error) {
	l := &listener{network: c.host.network, address: address, host: c.host.name, closed: make(chan struct{})}
	l.server = newServer(l, largest)
	if err := c.host.network.open(l); err != nil {
		return nil, err
	}
	return l.server, nil
}

// Connect implements rpc.Carrier.
func (c *Carrier) Connect(address string) rpc.Conn {
	life, end := context.WithCancel(context.Background())
	return &caller{host: c.host, address: address, life: life, end: end, again: make(chan struct{}, 1), changed: make(chan struct{})}
}

// The times of a caller that connects are those of rpc.Dial.
const (
	connectTime  = 5 * time.Second
	firstPause   = 200 * time.Millisecond
	longestPause = 2 * time.Second
)

// caller is the client's side of all connections to an address, one after the other. It
// implements rpc.Conn.
type caller struct {
	host    *Host
	address string
	life    context.Context
	end     context.CancelFunc
	again   chan struct{} // do not wait for the next attempt
	dials   sync.WaitGroup

	mu      sync.Mutex // guards the fields below, never held while waiting
	state   connectivity.State
	changed chan struct{} // closed with the next change of state
	line    *line         // while the state is Ready
	err     error         // of the last attempt
}

var _ rpc.Conn = (*caller)(nil)

// become changes the state. The lock is held.
func (c *caller) become(state connectivity.State) {
	if c.state != connectivity.Shutdown {
		c.state = state
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

func (c *caller) GetState() connectivity.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *caller) WaitForStateChange(ctx context.Context, from connectivity.State) bool {
	c.mu.Lock()
	state, changed := c.state, c.changed
	c.mu.Unlock()
	if state != from {
		return true
	}
	select {
	case <-changed:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *caller) ResetConnectBackoff() { nudge(c.again) }

func (c *caller) Connect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == connectivity.Idle {
		c.become(connectivity.Connecting)
		c.dials.Go(c.dial)
	}
}

// dial connects. As with gRPC, attempts after one that failed do not change the state.
func (c *caller) dial() {
	rng := random(c.host.network.seed, c.host.name+" waits for "+c.address)
	for pause := firstPause; c.life.Err() == nil; {
		err := c.try()
		if err == nil {
			return
		}
		c.mu.Lock()
		if c.err = err; c.state == connectivity.Connecting {
			c.become(connectivity.TransientFailure)
		}
		c.mu.Unlock()
		select {
		case <-time.After(time.Duration(float64(pause) * (0.8 + 0.4*rng.Float64()))):
			pause = min(pause*8/5, longestPause)
		case <-c.again:
			pause = firstPause
		case <-c.life.Done():
		}
	}
}

func (c *caller) try() error {
	ctx, cancel := context.WithTimeout(c.life, connectTime)
	defer cancel()
	var made *line
	err := c.host.reach(ctx, c.address, func(k *link, l *listener, rng *rand.Rand) bool {
		if l.server == nil {
			return false
		}
		made = &line{link: k, conn: c, server: l.server, calls: map[*call]struct{}{}}
		for way := range made.rngs {
			made.rngs[way] = rand.New(rand.NewPCG(rng.Uint64(), uint64(way)))
		}
		k.carried = made
		l.server.add(made)
		return true
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.line, c.err = made, nil
	c.become(connectivity.Ready)
	return nil
}

// lose takes note of a connection that takes no further calls.
func (c *caller) lose(l *line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.line == l {
		c.line = nil
		c.become(connectivity.Idle)
	}
}

var errClosing = status.Error(codes.Canceled, "grpc: the client connection is closing")

// Close ends all calls.
func (c *caller) Close() error {
	c.mu.Lock()
	l := c.line
	was := c.state == connectivity.Shutdown
	c.become(connectivity.Shutdown)
	c.line = nil
	c.mu.Unlock()
	if was {
		return errClosing
	}
	c.end()
	c.dials.Wait()
	if l != nil {
		l.abandon(errClosing)
	}
	return nil
}

// ready returns a connection; it waits until there is one, or an attempt fails.
func (c *caller) ready(ctx context.Context, patient bool) (*line, error) {
	for {
		c.mu.Lock()
		l, state, changed, err := c.line, c.state, c.changed, c.err
		c.mu.Unlock()
		switch {
		case l != nil:
			return l, nil
		case state == connectivity.Shutdown:
			return nil, errClosing
		case state == connectivity.TransientFailure && !patient:
			return nil, status.Errorf(codes.Unavailable, "connection error: desc = %q", err)
		}
		c.Connect()
		select {
		case <-changed:
		case <-ctx.Done():
			s := status.FromContextError(ctx.Err())
			if err != nil {
				return nil, status.Errorf(s.Code(), "%s while waiting for connections to become ready; last: %v", s.Message(), err)
			}
			return nil, s.Err()
		}
	}
}

// open begins a call.
func (c *caller) open(ctx context.Context, method string, one bool, opts []grpc.CallOption) (*clientStream, error) {
	patient := false
	for _, o := range opts {
		if o, ok := o.(grpc.FailFastCallOption); ok {
			patient = !o.FailFast
		}
	}
	for {
		if ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		l, err := c.ready(ctx, patient)
		if err != nil {
			return nil, err
		}
		k := newCall(ctx, l, method)
		if l.begin(k) {
			k.unwatch = context.AfterFunc(ctx, func() { k.abandon(status.FromContextError(ctx.Err()).Err()) })
			return &clientStream{call: k, ctx: ctx, one: one}, nil
		}
		k.cancel()
		c.lose(l)
	}
}

func newCall(ctx context.Context, l *line, method string) *call {
	c := &call{line: l, method: method, flows: [2]*flow{newFlow(), newFlow()}}
	theirs := context.Background()
	if md, ok := metadata.FromOutgoingContext(ctx); ok {
		theirs = metadata.NewIncomingContext(theirs, md.Copy())
	}
	if deadline, ok := ctx.Deadline(); ok {
		c.ctx, c.cancel = context.WithDeadline(theirs, deadline)
	} else {
		c.ctx, c.cancel = context.WithCancel(theirs)
	}
	return c
}

// NewStream implements grpc.ClientConnInterface.
func (c *caller) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := c.open(ctx, method, !desc.ClientStreams, opts)
	if err != nil {
		return nil, err
	}
	if desc.ClientStreams {
		_ = s.call.line.send(s.call, up, message{}) // whoever receives hears why it failed
	}
	return s, nil
}

// Invoke implements grpc.ClientConnInterface.
func (c *caller) Invoke(ctx context.Context, method string, request, reply any, opts ...grpc.CallOption) error {
	s, err := c.open(ctx, method, true, opts)
	if err != nil {
		return err
	}
	if err := s.SendMsg(request); err != nil {
		s.call.abandon(err)
		s.finish(err)
		return err
	}
	if err := s.RecvMsg(reply); err != io.EOF {
		return err // nil, too
	}
	return status.Error(codes.Internal, "cardinality violation: received no response message from non-server-streaming RPC")
}
