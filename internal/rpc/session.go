package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/fault"
)

// leaveTime is how long a role that stops waits for the planner to end their session.
const leaveTime = time.Second

// Session is a role's side of its stream with the planner: Q out, R in. Sending is safe for
// concurrent use.
type Session[Q, R any] struct {
	talk   *talk
	to     string // address of the planner
	conn   Conn   // to it
	sender *Sender[*Q]
	stream grpc.BidiStreamingClient[Q, R]
	cut    context.CancelFunc // ends the stream
	heard  bool               // the planner has said something; of the goroutine that calls Each
	quiet  atomic.Bool        // it says nothing any more
	epoch  uint64             // of the planner, as it said first; of the same goroutine
}

// ended is the end of a session that the planner, or the way to it, brought about. What is
// wrong with the planner itself it says: for the role, the planner is gone.
type ended struct{ err error }

func (e *ended) Error() string { return e.err.Error() }
func (e *ended) Unwrap() error { return e.err }

func (s *Session[Q, R]) lost(err error) error { return &ended{s.talk.lost(s.to, err)} }

func (t *talk) lost(planner string, err error) error {
	class := fault.Lost
	if err = FromStatus(err); t.met {
		err = Lost(err)
	}
	if fault.ClassOf(err) == fault.User {
		class = fault.User
	}
	return fault.As(class, fmt.Errorf("%s %s: the session with the planner at %s ended: %w", t.role.Kind, t.role.ID, planner, err))
}

// Send sends one message. After the session ended in order it does nothing.
func (s *Session[Q, R]) Send(m *Q) error {
	if err := s.sender.Send(m); err != nil {
		return s.lost(err)
	}
	return nil
}

// Each calls take for each message that comes but beats, one after the other, until take fails
// or the session ends. When ctx ends, so does the session, in order: the planner reads io.EOF,
// and knows that nothing was lost. A planner that sends beats, and then nothing for
// seconds, has lost the session, as has one of several that never says anything. Each is
// called once.
func (s *Session[Q, R]) Each(ctx context.Context, take func(*R) error) error {
	defer context.AfterFunc(ctx, s.leave)()
	var attention *Attention
	var silence time.Duration // that is too long
	attend := func(rounds int) {
		silence = time.Duration(rounds) * listenEvery
		attention = Attend(listenEvery, rounds, func(int) { s.quiet.Store(true); s.cut() })
	}
	if len(s.talk.planners) > 1 {
		attend(answerRounds)
	}
	beats := false
	defer func() {
		if attention != nil {
			attention.End()
		}
	}()
	for {
		m, err := s.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return context.Canceled
		case err != nil && s.quiet.Load():
			return s.lost(status.Errorf(codes.Unavailable, "it has said nothing for %v", silence))
		case err != nil:
			return s.lost(err)
		}
		if attention != nil {
			attention.Pause()
		}
		if !beats && attention != nil { // from the first beat on it has more time
			attention.End()
			attention = nil
		}
		if err := s.hear(m); err != nil {
			return err
		}
		switch {
		case isBeat(m) && !beats:
			beats = true
			attend(silentRounds)
		case !isBeat(m) && epochOf(m) == 0:
			if err := take(m); err != nil {
				return err
			}
		}
		if attention != nil {
			attention.Heard()
		}
	}
}

// hear refuses a message of a planner whose epoch is over, by what anyone said meanwhile. The
// first one of a session tells the planner's epoch, if it has one.
func (s *Session[Q, R]) hear(m *R) error {
	if !s.heard && isBeat(m) {
		return nil // it may come before the epoch
	}
	if !s.heard {
		s.epoch = epochOf(m)
	}
	if err := s.talk.check(s.epoch); err != nil {
		return s.lost(err)
	}
	if !s.heard {
		s.heard = true
		s.talk.connected(s.to)
	}
	return nil
}

// epochOf is the epoch that a planner's order says; 0 if it is another order.
func epochOf(order any) uint64 {
	if o, ok := order.(interface{ GetEpoch() uint64 }); ok {
		return o.GetEpoch()
	}
	return 0
}

// leave ends the sending side. The other side ends the stream then; if it does not, the
// stream is cut.
func (s *Session[Q, R]) leave() {
	late := time.AfterFunc(leaveTime, s.cut)
	context.AfterFunc(s.stream.Context(), func() { late.Stop() })
	s.sender.finish(s.stream.CloseSend)
}

// Answer holds the planner's side of a session until either side ends: it sends what is put
// in out, and calls hear, which receives and takes in one message, again and again. beats sends
// beats beside that, until ctx ends. It
// returns nil if the session ended in order: the role left, or stopped was closed. cancel
// ends ctx, which is the stream's.
func Answer[M any](ctx context.Context, cancel context.CancelFunc, stopped <-chan struct{}, out *Outbox[M], send func(M) error, beats, hear func() error) error {
	go func() { _ = beats() }() // it ends with ctx, and gRPC waits for it as for the stream
	sent := make(chan error, 1)
	go func() { sent <- out.Run(ctx, send) }()
	heard := make(chan error, 1)
	go func() {
		for {
			if err := hear(); err != nil {
				heard <- err
				return
			}
		}
	}()
	var err error
	select {
	case err = <-heard: // the handler's return ends the stream, and with it what is left
	case err = <-sent:
	case <-stopped:
	case <-ctx.Done(): // the session is refused, and what is being sent may never come to its end
		err = ctx.Err()
	}
	cancel()
	select {
	case <-stopped: // whatever was heard or sent then failed for that
		return nil
	default:
	}
	if errors.Is(err, io.EOF) {
		return nil // the other side sees its stream end, and ends as well
	}
	return err
}
