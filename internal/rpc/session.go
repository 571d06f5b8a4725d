package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// leaveTime is how long a role that stops waits for the planner to end their session.
const leaveTime = time.Second

// logWaitEvery is how often a role logs that it waits for the planner: a night without one
// is a page of log.
const logWaitEvery = 30 * time.Second

// Role is a role that talks to the planner for as long as it lives. All fields are required.
type Role struct {
	Kind     string // loader or constructor, in messages
	ID       string // unique in the job
	Address  string // where others reach it
	Callers  string // who these are, in messages
	Planner  string // its address
	Security Security
	Log      *slog.Logger
}

// Session is a role's side of its stream with the planner: Q out, R in. Sending is safe for
// concurrent use.
type Session[Q, R any] struct {
	role   *Role
	sender *Sender[*Q]
	stream grpc.BidiStreamingClient[Q, R]
	cut    context.CancelFunc // ends the stream
}

// Open opens a stream with the planner: a method of pb.PlannerClient.
type Open[Q, R any] = func(pb.PlannerClient, context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[Q, R], error)

// Talk holds the session of a role with its planner: it waits until there is one, says hello
// and calls work, which calls Each, and whose end is the end of the session.
//
// Talk returns nil if ctx ended, and context.Canceled if the planner ended the session in
// order. A session that broke is an error of class fault.Lost, or fault.User if the planner
// refused it.
func Talk[Q, R any](ctx context.Context, r Role, open Open[Q, R], hello *Q, work func(context.Context, *Session[Q, R]) error) error {
	conn, err := Dial(r.Planner, r.Security)
	if err != nil {
		return err
	}
	defer conn.Close()
	s, err := openSession(ctx, &r, pb.NewPlannerClient(conn), open)
	if err == nil {
		defer s.cut()
		r.connected()
		if err = s.Send(hello); err == nil {
			err = work(ctx, s)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// openSession waits until there is a planner. While there is none it logs why, at once and
// then now and then.
func openSession[Q, R any](ctx context.Context, r *Role, planner pb.PlannerClient, open Open[Q, R]) (*Session[Q, R], error) {
	life, cut := context.WithCancel(context.WithoutCancel(ctx))
	early := context.AfterFunc(ctx, cut)
	pause := Backoff{Name: r.Kind + " " + r.ID}
	var logged time.Time
	stream, err := open(planner, life)
	for status.Code(err) == codes.Unavailable && ctx.Err() == nil {
		if time.Since(logged) > logWaitEvery {
			logged = time.Now()
			r.Log.Warn("waiting for the planner: is it running there, and with the same --tls-* flags?", "planner", r.Planner, "err", FromStatus(err))
		}
		if pause.Wait(ctx) == nil {
			stream, err = open(planner, life)
		}
	}
	if err != nil {
		cut()
		return nil, r.lost(err)
	}
	early()
	return &Session[Q, R]{role: r, sender: NewSender(stream.Send), stream: stream, cut: cut}, nil
}

func (r *Role) connected() {
	r.Log.Info("connected to the planner", "planner", r.Planner, "address", r.Address)
	if OnlyHere(r.Address, r.Planner) {
		r.Log.Warn(r.Callers+" on other machines cannot reach this address: give --listen HOST:PORT, or --advertise", "address", r.Address)
	}
}

// lost is the error of a session that ended with err. What is wrong with the planner itself
// it says: for the role, the planner is gone.
func (r *Role) lost(err error) error {
	class := fault.Lost
	if err = FromStatus(err); fault.ClassOf(err) == fault.User {
		class = fault.User
	}
	return fault.As(class, fmt.Errorf("%s %s: the session with the planner at %s ended: %w", r.Kind, r.ID, r.Planner, err))
}

// Send sends one message. After the session ended in order it does nothing.
func (s *Session[Q, R]) Send(m *Q) error {
	if err := s.sender.Send(m); err != nil {
		return s.role.lost(err)
	}
	return nil
}

// Each calls take for each message that comes, one after the other, until take fails or the
// session ends. When ctx ends, so does the session, in order: the planner reads io.EOF, and
// knows that nothing was lost. Each is called once.
func (s *Session[Q, R]) Each(ctx context.Context, take func(*R) error) error {
	defer context.AfterFunc(ctx, s.leave)()
	for {
		m, err := s.stream.Recv()
		if errors.Is(err, io.EOF) {
			return context.Canceled
		}
		if err != nil {
			return s.role.lost(err)
		}
		if err := take(m); err != nil {
			return err
		}
	}
}

// leave ends the sending side. The other side ends the stream then; if it does not, the
// stream is cut.
func (s *Session[Q, R]) leave() {
	late := time.AfterFunc(leaveTime, s.cut)
	context.AfterFunc(s.stream.Context(), func() { late.Stop() })
	s.sender.finish(s.stream.CloseSend)
}

// Answer holds the planner's side of a session until either side ends: it sends what is put
// in out, and calls hear, which receives and takes in one message, again and again. It
// returns nil if the session ended in order: the role left, or stopped was closed. cancel
// ends ctx, which is the stream's.
func Answer[M any](ctx context.Context, cancel context.CancelFunc, stopped <-chan struct{}, out *Outbox[M], send func(M) error, hear func() error) error {
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
