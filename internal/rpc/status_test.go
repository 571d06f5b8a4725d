package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

func TestStatusRoundTrip(t *testing.T) {
	for _, c := range []struct {
		err  error
		code codes.Code
	}{
		{fault.Userf("bad spec"), codes.FailedPrecondition},
		{fault.Lostf("disk away"), codes.Unavailable},
		{errors.New("broken invariant"), codes.Internal},
		{context.Canceled, codes.Canceled},
		{fmt.Errorf("reading: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		{fault.As(fault.Lost, fmt.Errorf("waiting: %w", context.DeadlineExceeded)), codes.DeadlineExceeded},
		// The class that was set stands, whatever lies below.
		{fault.As(fault.User, fmt.Errorf("filter never ends: %w", context.DeadlineExceeded)), codes.FailedPrecondition},
		{fault.As(fault.User, status.Error(codes.Unavailable, "no")), codes.FailedPrecondition},
		{status.Error(codes.NotFound, "no such step"), codes.NotFound},
		{status.Error(codes.Unknown, "what"), codes.Internal},
	} {
		sent := rpc.ToStatus(c.err)
		if got := status.Code(sent); got != c.code {
			t.Errorf("%v goes as %v, want %v", c.err, got, c.code)
		}
		got := rpc.FromStatus(sent)
		want := fault.ClassOf(c.err)
		if c.code == codes.NotFound {
			want = fault.User
		}
		if fault.ClassOf(got) != want {
			t.Errorf("%v comes back as %v, want %v", c.err, fault.ClassOf(got), want)
		}
		if again := rpc.ToStatus(got); fault.ClassOf(rpc.FromStatus(again)) != want {
			t.Errorf("%v loses its class on the second way", c.err)
		}
	}
	if got := rpc.FromStatus(rpc.ToStatus(fault.Userf("the words"))).Error(); got != "the words" {
		t.Errorf("the message came as %q", got)
	}
	if rpc.ToStatus(nil) != nil || rpc.FromStatus(nil) != nil {
		t.Error("no error became one")
	}
	plain := errors.New("not from the wire")
	if rpc.FromStatus(plain) != plain {
		t.Error("an error that is no status was changed")
	}
}

// TestCodesHaveClasses checks the codes that gRPC itself gives.
func TestCodesHaveClasses(t *testing.T) {
	for code, want := range map[codes.Code]fault.Class{
		codes.Unavailable: fault.Lost, codes.DeadlineExceeded: fault.Lost, codes.Canceled: fault.Lost,
		codes.ResourceExhausted: fault.Lost, codes.Unimplemented: fault.User, codes.Unauthenticated: fault.User,
		codes.Internal: fault.Bug, codes.Unknown: fault.Bug, codes.DataLoss: fault.Bug,
	} {
		if got := fault.ClassOf(rpc.FromStatus(status.Error(code, "x"))); got != want {
			t.Errorf("%v is %v, want %v", code, got, want)
		}
	}
}

// TestResetByProxy: a proxy that loses the server behind it resets the stream, which says nothing of this program.
func TestResetByProxy(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var plain http.Protocols
	plain.SetUnencryptedHTTP2(true)
	proxy := &http.Server{Protocols: &plain, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})}
	defer proxy.Close()
	go func() { _ = proxy.Serve(listener) }() // it ends with an error when it is closed
	conn, err := rpc.Dial(listener.Addr().String(), rpc.Security{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = pb.NewPlannerClient(conn).Why(t.Context(), &pb.WhyRequest{})
	if code := status.Code(err); code != codes.Internal || fault.ClassOf(rpc.FromStatus(err)) != fault.Lost {
		t.Errorf("code %v of class %v: %v; want Internal, of class lost", code, fault.ClassOf(rpc.FromStatus(err)), err)
	}
}

func TestFailureRoundTrip(t *testing.T) {
	for _, err := range []error{fault.Userf("a"), fault.Lostf("b"), errors.New("c"), context.Canceled} {
		f := rpc.ToFailure(err, 2)
		if f.Source != 3 {
			t.Errorf("source %d, want 3", f.Source)
		}
		got := rpc.FromFailure(f)
		if got.Error() != err.Error() || fault.ClassOf(got) != fault.ClassOf(err) {
			t.Errorf("%v (%v) came back as %v (%v)", err, fault.ClassOf(err), got, fault.ClassOf(got))
		}
	}
	if rpc.ToFailure(errors.New("x"), -1).Source != 0 {
		t.Error("no source is to blame, but one is named")
	}
	if fault.ClassOf(rpc.FromFailure(&pb.Failure{Class: "of a later version"})) != fault.Bug {
		t.Error("an unknown class is not a bug")
	}
}
