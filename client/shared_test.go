package client_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	wire "google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/hostmem"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

func (p *planned) Share(context.Context, *pb.ShareRequest) (*pb.ShareReply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.socket == "" {
		return nil, wire.Error(codes.Unimplemented, "nothing is shared here")
	}
	if p.shares--; p.shares < 0 {
		return &pb.ShareReply{Reason: "there is no room"}, nil
	}
	return &pb.ShareReply{Socket: p.socket, Ticket: make([]byte, hostmem.TicketSize)}, nil
}

// TestLinesThatAreNotTaken: a rank whose line nobody takes gets its steps by a stream, each of them once. One that is
// to have memory asks again, and hears why there is none.
func TestLinesThatAreNotTaken(t *testing.T) {
	t.Parallel()
	l, err := hostmem.Listen(t.TempDir())
	if err != nil {
		t.Skip("no memory is shared here: ", err)
	}
	defer l.Close()
	p := servePlanned(t, &planned{protocol: rpc.Protocol, end: 5, streams: true, socket: l.Path, shares: 9})
	c := open(t.Context(), t, p.address, client.Options{Prefetch: 2})
	var steps []int64
	for err == nil {
		var b *client.Batch
		if b, err = c.Next(t.Context()); err == nil {
			steps = append(steps, b.Step)
		}
	}
	p.mu.Lock()
	if !errors.Is(err, io.EOF) || !slices.Equal(steps, []int64{0, 1, 2, 3, 4}) || !slices.Equal(p.without, []string{"the constructor has not taken the line to its socket"}) {
		t.Errorf("steps %v came, by streams since %q: %v", steps, p.without, err)
	}
	p.shares = 1
	p.mu.Unlock()
	_, err = open(t.Context(), t, p.address, client.Options{Way: client.WayShared}).Next(t.Context())
	isUser(t, err, `Options.Way is "shared", and there is no room`)
}
