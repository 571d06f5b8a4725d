package rpc

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// TestLargeMessages: a message beyond the limit of a server is refused, with the limit's name,
// and is no reason to try again; one below it is read.
func TestLargeMessages(t *testing.T) {
	t.Setenv(envKeyDir, t.TempDir())
	conn, err := Dial(serveAll(t, Security{}), Security{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for size, want := range map[int]string{MaxControl - 100: "", MaxControl + 1: "limit max_control", 4 * MaxControl: "limit max_control"} {
		_, err := pb.NewPlannerClient(conn).Join(t.Context(), &pb.JoinRequest{Token: make([]byte, size)})
		if want == "" {
			if status.Code(err) != codes.Unimplemented {
				t.Errorf("%d bytes: %v", size, err)
			}
			continue
		}
		if err = FromStatus(err); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "17825792 bytes") {
			t.Errorf("%d bytes: %v (%v)", size, err, fault.ClassOf(err))
		}
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "long", strings.Repeat("x", 2*maxHeader))
	if _, err := pb.NewPlannerClient(conn).Status(ctx, &pb.StatusRequest{}); status.Code(err) == codes.Unimplemented || err == nil {
		t.Errorf("headers of %d bytes: %v", 2*maxHeader, err)
	}
}

// TestStreamsOfAConnection: one connection has no more calls under way than the limit; the
// others wait on the side of the caller.
func TestStreamsOfAConnection(t *testing.T) {
	t.Setenv(envKeyDir, t.TempDir())
	conn, err := Dial(serveAll(t, Security{}), Security{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := call(t, conn, pb.Planner_Status_FullMethodName); status.Code(err) != codes.Unimplemented { // the limit is known from now on
		t.Fatal(err)
	}
	open := func(ctx context.Context) error { // it does not end before its request is whole
		_, err := conn.NewStream(ctx, &pb.Planner_ServiceDesc.Streams[0], pb.Planner_Join_FullMethodName)
		return err
	}
	for i := range maxStreams {
		if err := open(ctx); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	soon, stop := context.WithTimeout(ctx, 200*time.Millisecond)
	defer stop()
	if err := open(soon); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("call %d of one connection is under way: %v", maxStreams, err)
	}
}

// TestParts: parts of a message, merged, are the message, and each fits the planner.
func TestParts(t *testing.T) {
	big := &pb.BlockRead{Source: 3, Seq: 9, Filtered: 7, Bytes: 1 << 40, BansKnown: 2}
	for i := range 1_500_000 {
		big.Lengths = append(big.Lengths, uint32(i))
	}
	for i := range 20_000 {
		big.Skips = append(big.Skips, &pb.Skip{File: strings.Repeat("f", 200), Row: int64(i), Reason: "damaged"})
	}
	for name, m := range map[string]*pb.BlockRead{"big": big, "small": {Source: 1, Lengths: []uint32{1, 2}}, "empty": {}} {
		merged, parts, last := &pb.BlockRead{}, 0, false
		for part, more := range Parts(m) {
			if proto.Size(part) > wholeMessage || last {
				t.Errorf("%s: part %d has %d bytes, after the last: %v", name, parts, proto.Size(part), last)
			}
			proto.Merge(merged, part)
			parts, last = parts+1, !more
		}
		if !proto.Equal(merged, m) || !last || (parts > 1) != (name == "big") {
			t.Errorf("%s: %d parts are not the message", name, parts)
		}
	}
	if n := proto.Size(big); n < wholeMessage {
		t.Errorf("the message has %d bytes: it proves nothing", n)
	}
}

// BenchmarkCall is a call that does nothing but carry the access key.
func BenchmarkCall(b *testing.B) {
	b.Setenv(envKeyDir, b.TempDir())
	err := Run(b.Context(), "unix:"+filepath.Join(b.TempDir(), "s"), "", Security{}, MaxControl,
		func(s grpc.ServiceRegistrar) { pb.RegisterPlannerServer(s, pb.UnimplementedPlannerServer{}) },
		func(ctx context.Context, address string) error {
			conn, err := Dial(address, Security{})
			if err != nil {
				return err
			}
			defer conn.Close()
			for b.Loop() {
				if _, err := pb.NewPlannerClient(conn).Status(ctx, &pb.StatusRequest{}); status.Code(err) != codes.Unimplemented {
					return err
				}
			}
			return context.Canceled
		})
	if err != nil {
		b.Fatal(err)
	}
}
