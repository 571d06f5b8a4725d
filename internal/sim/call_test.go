package sim_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/sim"
)

// service answers as the tests below want it.
type service struct {
	pb.UnimplementedPlannerServer
	pb.UnimplementedConstructorServer
	ended chan error   // of contexts of handlers
	sent  atomic.Int64 // frames
}

func (s *service) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusReply, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	return &pb.StatusReply{Json: []byte(strings.Join(md.Get("says"), ","))}, nil
}

func (s *service) State(ctx context.Context, r *pb.StateRequest) (*pb.StateReply, error) {
	switch r.Step {
	case 1:
		return nil, status.Error(codes.FailedPrecondition, "not yet")
	case 2:
		return nil, errors.New("plain")
	}
	<-ctx.Done()
	s.ended <- ctx.Err()
	return nil, ctx.Err()
}

// Load echoes heartbeats until its caller is done sending.
func (s *service) Load(stream pb.Planner_LoadServer) error {
	for {
		switch _, err := stream.Recv(); {
		case errors.Is(err, io.EOF):
			return stream.Send(&pb.LoaderOrder{})
		case err != nil:
			s.ended <- stream.Context().Err()
			return err
		}
		if err := stream.Send(&pb.LoaderOrder{Order: &pb.LoaderOrder_Beat{Beat: &pb.Beat{}}}); err != nil {
			return err
		}
	}
}

// Batch sends ten large frames.
func (s *service) Batch(r *pb.BatchRequest, stream grpc.ServerStreamingServer[pb.Frame]) error {
	if err := stream.SetHeader(metadata.Pairs("says", "ten")); err != nil {
		return err
	}
	for range 10 {
		if err := stream.Send(&pb.Frame{Body: make([]byte, 40_000)}); err != nil {
			return err
		}
		s.sent.Add(1)
	}
	return nil
}

// on runs a test against a service, over gRPC and over the calls that a network carries: they
// are to behave alike.
func on(t *testing.T, f func(t *testing.T, s *service, n *sim.Network, dial func(address string) rpc.Conn, stop context.CancelFunc)) {
	lanes := map[string]func(*sim.Network, string) rpc.Security{
		"grpc":    func(n *sim.Network, host string) rpc.Security { return rpc.Over(n.Host(host)) },
		"carried": func(n *sim.Network, host string) rpc.Security { return rpc.Through(n.Carrier(host)) },
	}
	for name, lane := range lanes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := sim.NewNetwork(1, sim.Faults{Delay: delay})
				s := &service{ended: make(chan error, 9)}
				ctx, stop := context.WithCancel(t.Context())
				serving, served := make(chan struct{}), make(chan error)
				go func() {
					served <- rpc.Run(ctx, "b:1", "", lane(n, "b"), rpc.MaxAsk, func(r grpc.ServiceRegistrar) {
						pb.RegisterPlannerServer(r, s)
						pb.RegisterConstructorServer(r, s)
					}, func(ctx context.Context, _ string) error {
						close(serving)
						<-ctx.Done()
						return ctx.Err()
					})
				}()
				<-serving
				f(t, s, n, func(address string) rpc.Conn {
					conn, err := rpc.Dial(address, lane(n, "a"))
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { conn.Close() })
					return conn
				}, stop)
				stop()
				if err := <-served; err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("serving: %v", err)
				}
			})
		})
	}
}

func expect(t *testing.T, what string, err error, want codes.Code, text string) {
	t.Helper()
	if status.Code(err) != want || err != nil && !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v, want %v with %q", what, err, want, text)
	}
}

// TestCalls: answers and refusals of single calls.
func TestCalls(t *testing.T) {
	on(t, func(t *testing.T, s *service, n *sim.Network, dial func(string) rpc.Conn, _ context.CancelFunc) {
		conn := dial("b:1")
		planner, ctx := pb.NewPlannerClient(conn), t.Context()
		reply, err := planner.Status(metadata.AppendToOutgoingContext(ctx, "says", "hello"), &pb.StatusRequest{})
		if err != nil || string(reply.Json) != "hello" {
			t.Errorf("got %v: %v", reply, err)
		}
		if state := conn.GetState(); state != connectivity.Ready {
			t.Errorf("the connection is %v", state)
		}
		_, err = planner.State(ctx, &pb.StateRequest{Step: 1})
		expect(t, "a refusal", err, codes.FailedPrecondition, "not yet")
		_, err = planner.State(ctx, &pb.StateRequest{Step: 2})
		expect(t, "an error without a code", err, codes.Unknown, "plain")
		_, err = planner.Change(ctx, &pb.ChangeRequest{})
		expect(t, "no such method", err, codes.Unimplemented, "Change")
		_, err = planner.Status(ctx, &pb.StatusRequest{})
		expect(t, "after refusals", err, codes.OK, "")
		_, err = planner.Join(ctx, &pb.JoinRequest{Token: make([]byte, rpc.MaxAsk+1)})
		expect(t, "a large request", err, codes.ResourceExhausted, "received message larger than max")

		early, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = planner.State(early, &pb.StateRequest{})
		expect(t, "a deadline", err, codes.DeadlineExceeded, "")
		if err := <-s.ended; !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			t.Errorf("the server's context ended with %v", err)
		}
		leaving, leave := context.WithCancel(ctx)
		time.AfterFunc(time.Second, leave)
		_, err = planner.State(leaving, &pb.StateRequest{})
		expect(t, "a caller that leaves", err, codes.Canceled, "")
		if err := <-s.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the server's context ended with %v", err)
		}
	})
}

// TestStreams: both ways, half closed, and one way against a caller that does not read.
func TestStreams(t *testing.T) {
	on(t, func(t *testing.T, s *service, n *sim.Network, dial func(string) rpc.Conn, _ context.CancelFunc) {
		conn := dial("b:1")
		stream, err := pb.NewPlannerClient(conn).Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := stream.Send(&pb.LoaderReport{}); err != nil {
				t.Fatal(err)
			}
			if m, err := stream.Recv(); err != nil || m.GetBeat() == nil {
				t.Fatalf("got %v: %v", m, err)
			}
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if m, err := stream.Recv(); err != nil || m.GetBeat() != nil {
			t.Errorf("after the end: %v: %v", m, err)
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the end: %v", err)
		}
		frames, err := pb.NewConstructorClient(conn).Batch(t.Context(), &pb.BatchRequest{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if s.sent.Load() == 10 {
			t.Error("all frames were sent to one who does not read")
		}
		got := 0
		for ; ; got++ {
			if f, err := frames.Recv(); errors.Is(err, io.EOF) {
				break
			} else if err != nil || len(f.Body) != 40_000 {
				t.Fatalf("frame %d: %v", got, err)
			}
		}
		if header, err := frames.Header(); got != 10 || err != nil || header.Get("says")[0] != "ten" {
			t.Errorf("%d frames, header %v: %v", got, header, err)
		}
	})
}

// TestConnections: who listens nowhere, comes later, dies, or stops.
func TestConnections(t *testing.T) {
	on(t, func(t *testing.T, s *service, n *sim.Network, dial func(string) rpc.Conn, stop context.CancelFunc) {
		ctx := t.Context()
		_, err := pb.NewPlannerClient(dial("c:1")).Status(ctx, &pb.StatusRequest{})
		expect(t, "nobody there", err, codes.Unavailable, "connection refused")
		early, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, err = pb.NewPlannerClient(dial("c:1")).Status(early, &pb.StatusRequest{}, grpc.WaitForReady(true))
		expect(t, "nobody comes", err, codes.DeadlineExceeded, "")

		closing := dial("b:1")
		stream, err := pb.NewPlannerClient(closing).Load(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		closing.Close()
		_, err = stream.Recv()
		expect(t, "a connection that was closed", err, codes.Canceled, "closing")
		if err := <-s.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the server's context ended with %v", err)
		}
		_, err = pb.NewPlannerClient(closing).Status(ctx, &pb.StatusRequest{})
		expect(t, "after that", err, codes.Canceled, "closing")

		planner := pb.NewPlannerClient(dial("b:1"))
		stream, err = planner.Load(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		stop() // it drains, and then it cuts
		begin := time.Now()
		_, err = stream.Recv()
		expect(t, "a server that stops", err, codes.Unavailable, "")
		if took := time.Since(begin); took < 3*time.Second || took > 5*time.Second {
			t.Errorf("it was cut after %v", took)
		}
		if err := stream.Send(&pb.LoaderReport{}); !errors.Is(err, io.EOF) {
			t.Errorf("sending then: %v", err)
		}
		_, err = planner.Status(ctx, &pb.StatusRequest{})
		expect(t, "after it stopped", err, codes.Unavailable, "")
	})
}

// TestQuiet: a host that is apart for long has its connections broken, as one that dies has at
// once.
func TestQuiet(t *testing.T) {
	on(t, func(t *testing.T, s *service, n *sim.Network, dial func(string) rpc.Conn, stop context.CancelFunc) {
		for what, harm := range map[string]func(){
			"apart": func() { n.Isolate("b", time.Minute) },
			"dead":  func() { n.Kill("a") },
		} {
			stream, err := pb.NewPlannerClient(dial("b:1")).Load(t.Context(), grpc.WaitForReady(true))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			harm()
			begin := time.Now()
			if err := stream.Send(&pb.LoaderReport{}); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			_, err = stream.Recv()
			expect(t, what, err, codes.Unavailable, "")
			if took := time.Since(begin); took > 40*time.Second {
				t.Errorf("%s: noticed after %v", what, took)
			}
			time.Sleep(time.Minute)
			if what == "dead" {
				break
			}
		}
	})
}

// TestCut: a call breaks, and its connection does not.
func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := sim.NewNetwork(1, sim.Faults{Delay: delay, Cut: 1})
		server, err := n.Carrier("b").Listen("b:1", 100)
		if err != nil {
			t.Fatal(err)
		}
		pb.RegisterPlannerServer(server, &service{})
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error)
		go func() { served <- server.Serve(ctx) }()
		conn := n.Carrier("a").Connect("b:1")
		_, err = pb.NewPlannerClient(conn).Status(t.Context(), &pb.StatusRequest{})
		expect(t, "a call that is cut", err, codes.Unavailable, "reset")
		n.Calm()
		_, err = pb.NewPlannerClient(conn).Status(t.Context(), &pb.StatusRequest{})
		expect(t, "the next one", err, codes.OK, "")
		if c := n.Counts(); c.Conns != 1 || c.Cuts != 1 {
			t.Errorf("counted %+v", c)
		}
		conn.Close()
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
