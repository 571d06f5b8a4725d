package rpc_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

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

// TestSessionEndsInOrder: the server reads the end of the stream when the client's role
// stops, after all that was sent before, and an error when the client is gone.
func TestSessionEndsInOrder(t *testing.T) {
	for _, orderly := range []bool{true, false} {
		l, err := rpc.Listen("127.0.0.1:0", rpc.Security{})
		if err != nil {
			t.Fatal(err)
		}
		server, err := rpc.NewServer(rpc.Security{})
		if err != nil {
			t.Fatal(err)
		}
		planner := &listener{begun: make(chan struct{}), heard: make(chan int, 1), ended: make(chan error, 1)}
		pb.RegisterPlannerServer(server, planner)
		served := make(chan error, 1)
		life, end := context.WithCancel(t.Context())
		go func() { served <- rpc.Serve(life, server, l) }()
		conn, err := rpc.Dial(rpc.Address(l), rpc.Security{})
		if err != nil {
			t.Fatal(err)
		}
		role, stop := context.WithCancel(t.Context())
		session, err := rpc.OpenSession(role, pb.NewPlannerClient(conn).Load, func(err error) { t.Errorf("waited: %v", err) })
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := session.Send(&pb.LoaderReport{}); err != nil {
				t.Fatal(err)
			}
		}
		<-planner.begun
		if orderly {
			stop()
			if _, err := session.Recv(); !errors.Is(err, io.EOF) {
				t.Errorf("the client reads %v, want the end of the stream", err)
			}
			if err := session.Send(&pb.LoaderReport{}); err != nil {
				t.Errorf("sending after the end: %v", err)
			}
		} else {
			conn.Close()
		}
		if n := <-planner.heard; orderly && n != 3 {
			t.Errorf("%d messages came, want 3", n)
		}
		if err := <-planner.ended; errors.Is(err, io.EOF) != orderly {
			t.Errorf("orderly %v: the server reads %v", orderly, err)
		}
		session.Close()
		conn.Close()
		stop()
		end()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// TestSessionWithoutServer: a role that is stopped before there is a server ends at once.
func TestSessionWithoutServer(t *testing.T) {
	conn, err := rpc.Dial("127.0.0.1:1", rpc.Security{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	role, stop := context.WithCancel(t.Context())
	stop()
	if _, err := rpc.OpenSession(role, pb.NewPlannerClient(conn).Load, func(error) {}); err == nil {
		t.Error("a session was opened with nobody")
	}
}

// TestSessionSaysThatItWaits: a role whose server is not there says so, and why, and
// begins its session when there is one.
func TestSessionSaysThatItWaits(t *testing.T) {
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	conn, err := rpc.Dial(address, rpc.Security{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	life, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	planner := &listener{begun: make(chan struct{}), heard: make(chan int, 1), ended: make(chan error, 1)}
	words := 0
	session, err := rpc.OpenSession(t.Context(), pb.NewPlannerClient(conn).Load, func(err error) {
		if words++; !strings.Contains(err.Error(), "no such file") || fault.ClassOf(err) != fault.Lost {
			t.Errorf("it waits for %v", err)
		}
		l, err := rpc.Listen(address, rpc.Security{})
		if err != nil {
			t.Fatal(err)
		}
		server, err := rpc.NewServer(rpc.Security{})
		if err != nil {
			t.Fatal(err)
		}
		pb.RegisterPlannerServer(server, planner)
		go func() { served <- rpc.Serve(life, server, l) }()
	})
	if err != nil || words != 1 {
		t.Fatalf("%v, after %d words", err, words)
	}
	session.Close()
	end()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
