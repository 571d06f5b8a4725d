package rpc

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// waiter answers calls for data when it is let.
type waiter struct {
	pb.UnimplementedLoaderServer
	answer  chan struct{}
	old     bool // it does not know Waiting
	callers int  // it may have
}

func (w *waiter) Fetch(req *pb.FetchRequest, stream grpc.ServerStreamingServer[pb.Frame]) error {
	err := Hold(stream, req.Hears && !w.old, w.callers, func() *pb.Waiting { return &pb.Waiting{Reason: "is at block 7"} }, func() error {
		select {
		case <-w.answer:
			return nil
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	})
	if err != nil {
		return err
	}
	return SendBody(stream, &pb.FetchHeader{BodySize: 3}, []byte("abc"), nil)
}

// gate is a connection that can be made to carry nothing to its reader.
type gate struct {
	net.Conn
	shut *atomic.Bool
}

func (g gate) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	for g.shut.Load() && err == nil {
		time.Sleep(10 * time.Millisecond)
	}
	return n, err
}

// gated is a network of one listener in memory, dialled through gates.
type gated struct {
	shut     atomic.Bool
	accepted chan net.Conn
	closed   context.Context
	close    context.CancelFunc
}

func (g *gated) Listen(string) (net.Listener, error) { return g, nil }

func (g *gated) Dial(context.Context, string) (net.Conn, error) {
	here, there := net.Pipe()
	g.accepted <- there
	return gate{here, &g.shut}, nil
}

func (g *gated) Accept() (net.Conn, error) {
	select {
	case c := <-g.accepted:
		return c, nil
	case <-g.closed.Done():
		return nil, net.ErrClosed
	}
}

func (g *gated) Close() error   { g.close(); return nil }
func (g *gated) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// serveWaiter serves w and returns a client of it, whose network can be shut.
func serveWaiter(t *testing.T, w *waiter) (pb.LoaderClient, *gated) {
	t.Helper()
	network := &gated{accepted: make(chan net.Conn, 1)}
	network.closed, network.close = context.WithCancel(t.Context())
	server, err := NewServer(Over(network))
	if err != nil {
		t.Fatal(err)
	}
	pb.RegisterLoaderServer(server, w)
	go server.Serve(network)
	t.Cleanup(server.Stop)
	conn, err := Dial(network.Addr().String(), Over(network))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { network.shut.Store(false); conn.Close() })
	return pb.NewLoaderClient(conn), network
}

func ask(ctx context.Context, c pb.LoaderClient, hears bool) (string, error) {
	stream, err := c.Fetch(ctx, &pb.FetchRequest{Hears: hears})
	if err != nil {
		return "", FromStatus(err)
	}
	body, err := ReceiveBody(stream, &pb.FetchHeader{}, nil)
	return string(body), FromStatus(err)
}

// TestWaiting: a caller that hears waits for as long as the server says that it waits, and
// learns for what; one that does not hear gets no frame that it does not know.
func TestWaiting(t *testing.T) { synctest.Test(t, testWaiting) }

func testWaiting(t *testing.T) {
	w := &waiter{answer: make(chan struct{})}
	c, _ := serveWaiter(t, w)
	let := func(after time.Duration) { time.AfterFunc(after, func() { w.answer <- struct{}{} }) }
	let(0)
	if body, err := ask(t.Context(), c, true); err != nil || body != "abc" {
		t.Fatal(body, err)
	}
	var told atomic.Pointer[string]
	ctx := Telling(t.Context(), func(address string, w *pb.Waiting) { told.Store(&w.Reason) })
	let((quietRounds + 1) * waitingEvery)
	if body, err := ask(ctx, c, true); err != nil || body != "abc" {
		t.Errorf("an answer that takes long: %q, %v", body, err)
	}
	if r := told.Load(); r == nil || *r != "is at block 7" {
		t.Errorf("the caller heard %v", r)
	}
	let(3 * waitingEvery / 2)
	if body, err := ask(t.Context(), c, false); err != nil || body != "abc" {
		t.Errorf("a caller that does not hear: %q, %v", body, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 5*waitingEvery/2)
	defer cancel()
	if _, err := ask(short, c, true); fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "the server waited for this: is at block 7") {
		t.Errorf("an answer that does not come: %v", err)
	}
}

// TestSilent: a caller that hears nothing gives up the attempt, one of many callers later, and the
// next one to a link that may be slow takes longer.
func TestSilent(t *testing.T) {
	for _, callers := range []int{1, 4 * callersPerRound} {
		synctest.Test(t, func(t *testing.T) {
			w := &waiter{answer: make(chan struct{}), callers: callers}
			c, network := serveWaiter(t, w)
			time.AfterFunc(0, func() { w.answer <- struct{}{} })
			if _, err := ask(t.Context(), c, true); err != nil {
				t.Fatal(err)
			}
			network.shut.Store(true)
			begin, least := time.Now(), time.Duration(RoundsAmong(callers)-1)*waitingEvery
			_, err := ask(t.Context(), c, true)
			if took := time.Since(begin); !isSilent(err) || fault.ClassOf(err) != fault.Lost || took < least || took > least+2*quietRounds*waitingEvery {
				t.Errorf("%d callers, after %v: %v", callers, took, err)
			}
			network.shut.Store(false)
			time.AfterFunc((quietRounds+1)*waitingEvery, func() { w.answer <- struct{}{} })
			if body, err := ask(t.Context(), c, true); err != nil || body != "abc" {
				t.Errorf("%d callers, when it is heard again: %q, %v", callers, body, err)
			}
		})
	}
}

// TestRoundsAmong: what a server asks of its callers is bounded, and a header that says nothing
// useful asks for nothing more.
func TestRoundsAmong(t *testing.T) {
	for callers, want := range map[int]int{0: 3, 1: 3, 127: 3, 128: 4, 4096: 35, 1 << 30: mostRounds} {
		if got := RoundsAmong(callers); got != want {
			t.Errorf("%d callers wait %d rounds each, want %d", callers, got, want)
		}
	}
	for said, want := range map[string]int{"1": 3, "35": 35, "9999": mostRounds, "-4": 3, "soon": 3} {
		l := &listener{}
		l.hear(metadata.Pairs(waitsKey, said))
		if got := (&heardStream{listener: l, limit: l.limit()}).allowed(0); !l.waits.Load() || got != want {
			t.Errorf("of %q %d rounds come, want %d", said, got, want)
		}
	}
	l := &listener{}
	if l.hear(metadata.MD{}); l.waits.Load() {
		t.Error("a server that does not say Waiting is expected to")
	}
}

func isSilent(err error) bool { _, silent := Silent(err); return silent }

// TestSilentServer: of a server that does not say Waiting, nobody expects it.
func TestSilentServer(t *testing.T) { synctest.Test(t, testSilentServer) }

func testSilentServer(t *testing.T) {
	w := &waiter{answer: make(chan struct{}), old: true}
	c, _ := serveWaiter(t, w)
	for _, after := range []time.Duration{0, (quietRounds + 2) * waitingEvery} {
		time.AfterFunc(after, func() { w.answer <- struct{}{} })
		if body, err := ask(t.Context(), c, true); err != nil || body != "abc" {
			t.Errorf("after %v: %q, %v", after, body, err)
		}
	}
}

// TestNobodyReceives: a call that its caller has ended is watched no more, though nobody receives its end.
func TestNobodyReceives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &waiter{answer: make(chan struct{}, 1)}
		c, _ := serveWaiter(t, w)
		w.answer <- struct{}{}
		if _, err := ask(t.Context(), c, true); err != nil { // now it is known to say Waiting
			t.Fatal(err)
		}
		var looks atomic.Int64
		ctx, end := context.WithCancel(Owing(t.Context(), func() bool { looks.Add(1); return false }))
		if _, err := c.Fetch(ctx, &pb.FetchRequest{Hears: true}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * waitingEvery / 2)
		end()
		synctest.Wait()
		before := looks.Load()
		time.Sleep(10 * waitingEvery)
		if after := looks.Load(); before == 0 || after != before {
			t.Errorf("%d looks at what is owed, and %d more after the end", before, after-before)
		}
	})
}

// TestAttention: it counts rounds in a row without a word, and none while it pauses.
func TestAttention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fell := make(chan time.Time, 1)
		a := Attend(20*time.Millisecond, 5, func(int) { fell <- time.Now() })
		defer a.End()
		for range 30 {
			time.Sleep(11 * time.Millisecond) // never when a round ends
			a.Heard()
		}
		a.Pause()
		time.Sleep(300 * time.Millisecond)
		select {
		case <-fell:
			t.Fatal("it fell silent while it was heard, or nobody listened")
		default:
		}
		a.Heard()
		spoke := time.Now()
		if took := (<-fell).Sub(spoke); took < 80*time.Millisecond || took > 100*time.Millisecond {
			t.Errorf("silent after %v", took)
		}
		over := Attend(time.Millisecond, 1, func(int) { t.Error("it ended") })
		over.End()
		time.Sleep(10 * time.Millisecond)
	})
}

// TestBeat: a sender that has nothing to send sends beats, and one that has does not.
func TestBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var beats atomic.Int64
		s := NewSender(func(m string) error {
			if m == "beat" {
				beats.Add(1)
			}
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Beat(ctx, BeatEvery, "beat") }()
		for range 20 {
			time.Sleep(BeatEvery/10 + time.Millisecond) // never when a beat is due
			if err := s.Send("other"); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := beats.Load(); n != 1 {
			t.Errorf("%d beats beside other messages, want 1", n)
		}
		time.Sleep(4 * BeatEvery)
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if n := beats.Load(); n != 1+3 { // none at the first of four ticks: something was sent before it
			t.Errorf("%d beats after %v of silence, want 4", n, 4*BeatEvery)
		}
	})
}
