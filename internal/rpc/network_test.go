package rpc_test

import (
	"context"
	"net"
	"os"
	"testing"

	"google.golang.org/grpc"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// pipes is a network of one listener.
type pipes struct {
	address  string
	accepted chan net.Conn
	closed   chan struct{}
}

func (p *pipes) Listen(address string) (net.Listener, error) {
	p.address = address
	return p, nil
}

func (p *pipes) Dial(_ context.Context, address string) (net.Conn, error) {
	here, there := net.Pipe()
	p.accepted <- there
	return here, nil
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return p }

func (p *pipes) Network() string { return "pipes" }
func (p *pipes) String() string  { return p.address }

type reporter struct{ pb.UnimplementedPlannerServer }

func (reporter) Status(context.Context, *pb.StatusRequest) (*pb.StatusReply, error) {
	return &pb.StatusReply{Json: []byte("{}")}, nil
}

// TestOver: on a network of one's own a service is called as on any other, by names that
// only that network knows, and leaves no access key behind.
func TestOver(t *testing.T) {
	keys := t.TempDir()
	t.Setenv("MILLRACE_KEY_DIR", keys)
	sec := rpc.Over(&pipes{accepted: make(chan net.Conn), closed: make(chan struct{})})
	register := func(s grpc.ServiceRegistrar) { pb.RegisterPlannerServer(s, reporter{}) }
	err := rpc.Run(t.Context(), "planner:7000", "", sec, rpc.MaxControl, register, func(ctx context.Context, address string) error {
		conn, err := rpc.Dial(address, sec)
		if err != nil {
			return err
		}
		defer conn.Close()
		reply, err := pb.NewPlannerClient(conn).Status(ctx, &pb.StatusRequest{})
		if address != "planner:7000" || string(reply.GetJson()) != "{}" {
			t.Errorf("%s said %v", address, reply)
		}
		left, _ := os.ReadDir(keys)
		if len(left) > 0 {
			t.Errorf("%s was left", left[0].Name())
		}
		if err != nil {
			return err
		}
		return context.Canceled
	})
	if err != nil {
		t.Error(err)
	}
}
