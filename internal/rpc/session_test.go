package rpc_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// listener is a planner that hears a loader to the end of its session.
type listener struct {
	pb.UnimplementedPlannerServer
	begun chan struct{}
	heard chan int
	ended chan error
}

func (l *listener) Load(stream grpc.BidiStreamingServer[pb.LoaderReport, pb.LoaderOrder]) error {
	close(l.begun)
	for n := 0; ; n++ {
		if _, err := stream.Recv(); err != nil {
			l.heard <- n
			l.ended <- err
			return nil
		}
	}
}

// role is a loader that talks to the planner at an address.
func role(planner string, log *slog.Logger) rpc.Role {
	return rpc.Role{Kind: "loader", ID: "a", Address: "unix:a", Callers: "constructors", Planner: planner, Epochs: &rpc.Epochs{}, Log: log}
}

// hello is what a role begins with.
func hello(uint64) *pb.LoaderReport { return &pb.LoaderReport{} }

type session = rpc.Session[pb.LoaderReport, pb.LoaderOrder]

// serve serves a planner at an address until the function it returns is called.
func serve(t *testing.T, address string, p pb.PlannerServer) (at string, end func()) {
	t.Helper()
	l, err := rpc.Listen(address, rpc.Security{})
	if err != nil {
		t.Fatal(err)
	}
	server, err := rpc.NewServer(rpc.Security{})
	if err != nil {
		t.Fatal(err)
	}
	pb.RegisterPlannerServer(server, p)
	served := make(chan error, 1)
	life, stop := context.WithCancel(t.Context())
	go func() { served <- rpc.Serve(life, server, l) }()
	return rpc.Address(l), func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// TestSessionEndsInOrder: the planner reads the end of the stream when the role stops or its
// work fails, after all that was sent before, and an error when the role is gone.
func TestSessionEndsInOrder(t *testing.T) {
	broken := errors.New("broken")
	for _, how := range []string{"stops", "fails", "is gone"} {
		t.Run(how, func(t *testing.T) {
			planner := &listener{begun: make(chan struct{}), heard: make(chan int, 1), ended: make(chan error, 1)}
			at, end := serve(t, "127.0.0.1:0", planner)
			life, stop := context.WithCancel(t.Context())
			err := rpc.Talk(life, role(at, slog.New(slog.DiscardHandler)), pb.PlannerClient.Load, hello, func(ctx context.Context, s *session) error {
				for range 3 {
					if err := s.Send(&pb.LoaderReport{}); err != nil {
						t.Fatal(err)
					}
				}
				<-planner.begun
				if how == "is gone" {
					return broken
				}
				g, ctx := errgroup.WithContext(ctx)
				g.Go(func() error {
					err := s.Each(ctx, func(*pb.LoaderOrder) error { return nil })
					if !errors.Is(err, context.Canceled) {
						t.Errorf("it reads %v, want the end of the stream", err)
					}
					return err
				})
				if how == "fails" {
					g.Go(func() error { return broken })
				} else {
					stop()
				}
				err := g.Wait()
				if err := s.Send(&pb.LoaderReport{}); err != nil {
					t.Errorf("sending after the end: %v", err)
				}
				return err
			})
			if how == "stops" && err != nil || how != "stops" && err != broken {
				t.Errorf("the session ended with %v", err)
			}
			if n := <-planner.heard; how != "is gone" && n != 4 {
				t.Errorf("%d messages came, want a hello and 3", n)
			}
			if err := <-planner.ended; errors.Is(err, io.EOF) == (how == "is gone") {
				t.Errorf("the planner reads %v", err)
			}
			stop()
			end()
		})
	}
}

// TestSessionWithoutPlanner: a role that is stopped before there is a planner ends at once,
// and no work begins.
func TestSessionWithoutPlanner(t *testing.T) {
	life, stop := context.WithCancel(t.Context())
	stop()
	err := rpc.Talk(life, role("127.0.0.1:1", slog.New(slog.DiscardHandler)), pb.PlannerClient.Load, hello, func(context.Context, *session) error {
		t.Error("a session was opened with nobody")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestSessionLogsThatItWaits: a role whose planner is not there logs that, and why, and
// begins its session when there is one. What the planner refuses is an error that names both.
func TestSessionLogsThatItWaits(t *testing.T) {
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	var lines strings.Builder
	end := func() {}
	waits := onLog{slog.NewTextHandler(&lines, nil), func(r slog.Record) {
		if r.Level == slog.LevelWarn {
			_, end = serve(t, address, pb.UnimplementedPlannerServer{})
		}
	}}
	err := rpc.Talk(t.Context(), role(address, slog.New(waits)), pb.PlannerClient.Load, hello, func(ctx context.Context, s *session) error {
		return s.Each(ctx, func(*pb.LoaderOrder) error { return nil })
	})
	if log := lines.String(); strings.Count(log, "waiting for the planner") != 1 || !strings.Contains(log, "no such file") {
		t.Errorf("the log: %s", log)
	}
	if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "loader a: the session with the planner at "+address+" ended: ") {
		t.Errorf("the session ended with %v", err)
	}
	end()
}

// onLog calls a function with each record.
type onLog struct {
	slog.Handler
	each func(slog.Record)
}

func (h onLog) Handle(ctx context.Context, r slog.Record) error {
	h.each(r)
	return h.Handler.Handle(ctx, r)
}

// TestAnswer: the planner's side of a session ends without an error if the role left or the
// planner was stopped, and with the error of what broke it otherwise.
func TestAnswer(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name    string
		hears   error // what hearing ends with; nil: it waits
		sends   error
		stopped bool
		want    error
	}{
		{"the role left", io.EOF, nil, false, nil},
		{"the role is lost", broken, nil, false, broken},
		{"sending fails", nil, broken, false, broken},
		{"the planner is stopped", nil, nil, true, nil},
		{"it is stopped while it hears", broken, nil, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			stopped := make(chan struct{})
			if c.stopped {
				close(stopped)
			}
			out := rpc.NewOutbox[int]()
			out.Put(1)
			err := rpc.Answer(ctx, cancel, stopped, out, func(int) error { return c.sends }, func() error { return nil }, func() error {
				if c.hears != nil {
					return c.hears
				}
				<-ctx.Done()
				return ctx.Err()
			})
			if err != c.want {
				t.Errorf("it ended with %v, want %v", err, c.want)
			}
			if ctx.Err() == nil {
				t.Error("its context goes on")
			}
		})
	}
}
