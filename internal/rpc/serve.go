package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
)

// Run serves what register registers on address, calls work with the address as
// others reach it (advertise, if that is given), and returns when either ends. work ends when
// ctx does; until it has, calls are served, so that a role can leave in order. That it ends with
// context.Canceled is its regular end. Unless sec is Of a planner, this is the planner, and
// makes the job's access key. A message of more than largest bytes is refused.
func Run(ctx context.Context, address, advertise string, sec Security, largest int, register func(grpc.ServiceRegistrar), work func(ctx context.Context, address string) error) error {
	return NewPort(address, advertise, sec, largest).Run(ctx, register, work)
}

// drainTime is how long a server waits for calls under way when it stops.
const drainTime = 4 * time.Second

// Serve serves until ctx ends, then stops intake, drains for a moment, and cuts
// what is left. It returns after all handlers did.
func Serve(ctx context.Context, server *grpc.Server, listener net.Listener) error {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		cut := time.AfterFunc(drainTime, server.Stop)
		defer cut.Stop()
		server.GracefulStop()
	}()
	err := server.Serve(listener)
	if ctx.Err() != nil {
		<-stopped
		return nil
	}
	return err
}

// Sender lets several goroutines send on one stream. It is safe for concurrent
// use; messages of one goroutine keep their order.
type Sender[M any] struct {
	turn     chan struct{} // holds one token: whose turn it is
	send     func(M) error
	count    atomic.Uint64 // messages sent
	finished bool
}

// NewSender wraps a stream's Send.
func NewSender[M any](send func(M) error) *Sender[M] {
	s := &Sender[M]{turn: make(chan struct{}, 1), send: send}
	s.turn <- struct{}{}
	return s
}

// Send sends one message. On a stream that has ended it does nothing: whoever
// receives from the stream hears why it did.
func (s *Sender[M]) Send(m M) error {
	<-s.turn
	defer func() { s.turn <- struct{}{} }()
	if s.finished {
		return nil
	}
	s.count.Add(1)
	if err := s.send(m); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// finish makes end the last that is done on the stream.
func (s *Sender[M]) finish(end func() error) {
	<-s.turn
	defer func() { s.turn <- struct{}{} }()
	s.finished = true
	end() // what fails on a stream that has ended, its receiver hears
}

// Outbox queues messages for one stream without ever blocking the one who puts
// them in: actors put, one goroutine takes.
type Outbox[M any] struct {
	mu    sync.Mutex
	queue []M
	nudge chan struct{}
}

// NewOutbox returns an empty outbox.
func NewOutbox[M any]() *Outbox[M] { return &Outbox[M]{nudge: make(chan struct{}, 1)} }

// Put queues a message.
func (o *Outbox[M]) Put(m M) {
	o.mu.Lock()
	o.queue = append(o.queue, m)
	o.mu.Unlock()
	select {
	case o.nudge <- struct{}{}:
	default:
	}
}

// Run sends what is put until ctx ends or send fails.
func (o *Outbox[M]) Run(ctx context.Context, send func(M) error) error {
	return o.RunAll(ctx, func(queue []M) error {
		for _, m := range queue {
			if err := send(m); err != nil {
				return err
			}
		}
		return nil
	})
}

// RunAll sends all that waits at once, in order, until ctx ends or send fails. While it
// sends, the next ones gather.
func (o *Outbox[M]) RunAll(ctx context.Context, send func(queue []M) error) error {
	for {
		o.mu.Lock()
		queue := o.queue
		o.queue = nil
		o.mu.Unlock()
		if err := send(queue); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.nudge:
		}
	}
}
