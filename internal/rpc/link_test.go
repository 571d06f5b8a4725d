package rpc

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/faultproxy"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// talker answers Fetch of one epoch with word after word until the call ends, and others with one, after which they
// hear nothing.
type talker struct {
	pb.UnimplementedLoaderServer
	pb.UnimplementedPlannerServer
	thinks chan struct{} // Why waits for one
	asked  atomic.Int64  // calls of Why that wait
}

const talks = 1

func (k *talker) Fetch(req *pb.FetchRequest, stream grpc.ServerStreamingServer[pb.Frame]) error {
	if err := SaysWaiting(stream, 1); err != nil {
		return err
	}
	for stream.Context().Err() == nil {
		if err := stream.Send(&pb.Frame{Waiting: &pb.Waiting{Reason: "reads"}}); err != nil {
			return err
		}
		if req.Epoch != talks {
			<-stream.Context().Done()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

func (k *talker) Why(ctx context.Context, _ *pb.WhyRequest) (*pb.Waiting, error) {
	k.asked.Add(1)
	defer k.asked.Add(-1)
	select {
	case <-k.thinks:
	case <-ctx.Done():
	}
	return &pb.Waiting{}, ctx.Err()
}

// alone waits until one call of Why is there: what it waits for would be another one's.
func (k *talker) alone(t *testing.T) {
	t.Helper()
	waitFor(t, func() bool { return k.asked.Load() == 1 })
}

// behindProxy serves a talker behind a proxy until the test ends, and returns a connection to it.
func behindProxy(t *testing.T, k *talker) (*faultproxy.Proxy, Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, err := NewServer(Security{})
	if err != nil {
		t.Fatal(err)
	}
	pb.RegisterLoaderServer(server, k)
	pb.RegisterPlannerServer(server, k)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	proxy, err := faultproxy.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	proxy.Forward(listener.Addr().String())
	conn, err := Dial(proxy.Address(), Security{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return proxy, conn
}

// fetchOf listens to a call until it ends, and returns why.
func fetchOf(t *testing.T, conn Conn, epoch uint64) (ended chan error) {
	t.Helper()
	stream, err := pb.NewLoaderClient(conn).Fetch(t.Context(), &pb.FetchRequest{Epoch: epoch, Hears: true})
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	heard := make(chan struct{}, 1)
	go func() {
		var in incoming
		for {
			if err := stream.RecvMsg(&in); err != nil {
				ended <- FromStatus(err)
				return
			}
			select {
			case heard <- struct{}{}:
			default:
			}
		}
	}()
	<-heard
	return ended
}

// TestLinkIsMadeAgain: of calls on a connection that carries nothing any more the first to notice ends all others as lost, and the
// next ones go over another connection. A call alone on which nothing is heard, while others hear, ends alone.
func TestLinkIsMadeAgain(t *testing.T) {
	proxy, conn := behindProxy(t, &talker{})
	first := fetchOf(t, conn, talks)
	if err := <-fetchOf(t, conn, talks+1); !isSilent(err) {
		t.Fatalf("a call on which nothing is heard: %v", err)
	}
	time.Sleep(200 * time.Millisecond)
	if n := proxy.Made(); n != 1 || len(first) > 0 {
		t.Fatalf("%d connections, %d calls ended, though one heard something", n, len(first))
	}
	second := fetchOf(t, conn, talks)
	proxy.Forget()
	begin := time.Now()
	for _, ended := range []chan error{first, second} {
		if err := <-ended; fault.ClassOf(err) != fault.Lost || time.Since(begin) > 3*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	}
	fetchOf(t, conn, talks)
	if n := proxy.Made(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// TestPrompt: a call whose answer waits for nothing shows that a connection is silent, which ends those whose answer may take long; not so
// while others hear something on it.
func TestPrompt(t *testing.T) {
	k := &talker{thinks: make(chan struct{})}
	proxy, conn := behindProxy(t, k)
	ask := func(prompt bool) error {
		ctx, cancel := context.WithCancel(t.Context())
		if prompt {
			ctx, cancel = Prompt(ctx, time.Second) // in which the other call hears a word on any machine
		}
		defer cancel()
		_, err := pb.NewPlannerClient(conn).Why(ctx, &pb.WhyRequest{})
		return FromStatus(err)
	}
	waits := make(chan error, 1)
	talk := fetchOf(t, conn, talks)
	go func() { waits <- ask(false) }()
	k.alone(t)
	if err := ask(true); err == nil || proxy.Made() != 1 || len(talk) > 0 {
		t.Fatalf("%v, %d connections", err, proxy.Made())
	}
	k.alone(t) // the other one has ended there, too
	k.thinks <- struct{}{}
	if err := <-waits; err != nil {
		t.Fatal(err)
	}
	go func() { waits <- ask(false) }()
	k.alone(t)
	proxy.Forget()
	if err := ask(true); err == nil {
		t.Fatal("an answer came over a connection that carries nothing")
	}
	if err := <-waits; fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "another one takes its place") {
		t.Errorf("a call that waited: %v", err)
	}
	if n := proxy.Made(); n > 2 {
		t.Errorf("%d connections", n)
	}
}

// TestPromptOfHurry: who has less time than an answer may take, and gives up, shows nothing of a connection: others wait on it.
func TestPromptOfHurry(t *testing.T) {
	k := &talker{thinks: make(chan struct{})}
	proxy, conn := behindProxy(t, k)
	why := func(ctx context.Context) error {
		_, err := pb.NewPlannerClient(conn).Why(ctx, &pb.WhyRequest{})
		return err
	}
	waits := make(chan error, 1)
	for _, hurry := range []bool{false, true} { // first the connection comes to be
		go func() { waits <- why(t.Context()) }()
		if hurry {
			k.alone(t)
			parent, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			ctx, end := Prompt(parent, time.Minute)
			if err := why(ctx); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("a call in a hurry: %v", err)
			}
			end()
			cancel()
			time.Sleep(100 * time.Millisecond)
			k.alone(t) // it has ended there, too
		}
		var err error
		select {
		case k.thinks <- struct{}{}:
			err = <-waits
		case err = <-waits:
		}
		if err != nil {
			t.Errorf("a call that waited: %v", err)
		}
	}
	if n := proxy.Made(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestStillSilent: where a connection that takes the place of a silent one does not come to be, as to a process that is stopped, the
// other side still says nothing. One that refuses says something.
func TestStillSilent(t *testing.T) {
	l, w := &listener{address: "host:1"}, &wire{since: time.Now().Add(-3 * time.Second)}
	preface := status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: use of closed network connection"`)
	if err := l.explain(w, preface); !isSilent(err) || !strings.Contains(err.Error(), "host:1 has said nothing for 3s") {
		t.Errorf("of a stopped process: %v", err)
	}
	if err := l.explain(w, status.Error(codes.Unavailable, "connection refused")); isSilent(err) {
		t.Errorf("of one that is gone: %v", err)
	}
	if err := l.explain(&wire{}, preface); isSilent(err) {
		t.Errorf("of one that was never heard: %v", err)
	}
	if w.heard.Add(1); isSilent(l.explain(w, preface)) {
		t.Error("of one that was heard since")
	}
}
