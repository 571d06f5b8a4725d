package client

import (
	"context"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	wire "google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// rivals is a service that knows one client of a rank, as the real one does.
type rivals struct {
	pb.UnimplementedPlannerServer
	pb.UnimplementedConstructorServer
	address string

	mu     sync.Mutex
	join   uint64
	lost   int // joins again that do not arrive
	breaks int // requests that do not arrive
}

func (r *rivals) Join(_ context.Context, req *pb.JoinRequest) (*pb.JoinReply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost--; req.At != nil && r.lost >= 0 {
		return nil, rpc.ToStatus(fault.Lostf("the connection broke"))
	}
	r.join++
	return &pb.JoinReply{Protocol: rpc.Protocol, Constructor: r.address, Fetches: true, Join: r.join, Epoch: 1, NextStep: req.GetAt().GetStep()}, nil
}

func (r *rivals) Ack(context.Context, *pb.AckRequest) (*pb.AckReply, error) {
	return &pb.AckReply{}, nil
}

func (r *rivals) Batch(req *pb.BatchRequest, stream grpc.ServerStreamingServer[pb.Frame]) error {
	r.mu.Lock()
	void := req.Join < r.join
	r.breaks--
	broken := r.breaks >= 0
	r.mu.Unlock()
	if broken {
		return rpc.ToStatus(fault.Lostf("the connection broke"))
	}
	if void {
		return wire.Error(codes.AlreadyExists, "another client joined as this rank after this one")
	}
	return rpc.SendBody(stream, &pb.BatchHeader{Step: req.Step}, nil, nil)
}

// TestOldDoubt: a client whose join again was lost long ago, and that got steps since by the join it had, is replaced by
// another client as any is.
func TestOldDoubt(t *testing.T) {
	l, err := rpc.Listen("127.0.0.1:0", Security{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rivals{address: l.Addr().String()}
	server, err := rpc.NewServer(Security{})
	if err != nil {
		t.Fatal(err)
	}
	pb.RegisterPlannerServer(server, r)
	pb.RegisterConstructorServer(server, r)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(ctx, server, l) }()
	t.Cleanup(func() { cancel(); <-served })
	open := func() *Client {
		c, err := Open(t.Context(), r.address, Options{Prefetch: -1, Way: WayCalls})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	next := func(c *Client) error { _, err := c.Next(t.Context()); return err }
	old := open()
	if err := next(old); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	r.breaks, r.lost = 2, 1
	r.mu.Unlock()
	if err := next(old); err != nil {
		t.Fatal(err)
	}
	if !old.session.doubtful() {
		t.Fatal("no join was lost")
	}
	old.session.doubt = old.session.doubt.Add(-doubtTime)
	if err := next(old); err != nil {
		t.Fatal(err)
	}
	other := open()
	if err := next(other); err != nil {
		t.Fatal(err)
	}
	if err := next(old); fault.ClassOf(err) != fault.User || !rpc.JoinedSince(err) {
		t.Errorf("the old client hears %v", err)
	}
	if err := next(other); err != nil {
		t.Errorf("the new client hears %v", err)
	}
}
