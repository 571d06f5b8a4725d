package client_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/faultproxy"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// TestNoServiceAtAll: a client of what is a web server hears so, and does not wait for a service.
func TestNoServiceAtAll(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	_, err := client.Open(t.Context(), web.Listener.Addr().String(), client.Options{Stall: time.Hour, Deadline: 2 * time.Hour})
	isUser(t, err, "is not a Millrace service: check address and port")
}

// bulky is a service of steps that have bytes, behind proxies.
type bulky struct {
	pb.UnimplementedPlannerServer
	pb.UnimplementedConstructorServer
	size    int
	at      string        // behind the proxies
	dry     atomic.Int64  // if not 0, the first step that does not come
	waited  atomic.Uint64 // microseconds, as a rank said last
	words   atomic.Int64  // of ranks on their streams
	planner *faultproxy.Proxy
	data    *faultproxy.Proxy
}

// serveBulky serves steps of some size until the test ends.
func serveBulky(t *testing.T, size int) *bulky {
	t.Helper()
	s := &bulky{size: size}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.at = listener.Addr().String()
	server, err := rpc.NewServer(client.Security{})
	if err != nil {
		t.Fatal(err)
	}
	pb.RegisterPlannerServer(server, s)
	pb.RegisterConstructorServer(server, s)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(ctx, server, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	for _, p := range []**faultproxy.Proxy{&s.planner, &s.data} {
		if *p, err = faultproxy.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup((*p).Close)
		(*p).Forward(s.at)
	}
	return s
}

func (s *bulky) Join(context.Context, *pb.JoinRequest) (*pb.JoinReply, error) {
	return &pb.JoinReply{Protocol: rpc.Protocol, Constructor: s.data.Address(), Fetches: true, Join: 1, Epoch: 1}, nil
}

func (s *bulky) State(_ context.Context, req *pb.StateRequest) (*pb.StateReply, error) {
	return &pb.StateReply{Token: []byte("token"), Epoch: 1}, nil
}

func (s *bulky) Why(context.Context, *pb.WhyRequest) (*pb.Waiting, error) { return &pb.Waiting{}, nil }

func (s *bulky) Ack(context.Context, *pb.AckRequest) (*pb.AckReply, error) {
	return &pb.AckReply{}, nil
}

func (s *bulky) Batch(req *pb.BatchRequest, stream grpc.ServerStreamingServer[pb.Frame]) error {
	s.waited.Store(req.WaitedUs)
	if err := rpc.SaysWaiting(stream, 1); err != nil {
		return err
	}
	if s.dried(req.Step) {
		return s.hold(stream)
	}
	return rpc.SendBody(stream, &pb.BatchHeader{Step: req.Step, BodySize: uint64(s.size)}, make([]byte, s.size), nil)
}

func (s *bulky) Deliver(stream grpc.BidiStreamingServer[pb.DeliverRequest, pb.Frame]) error {
	said := make(chan *pb.DeliverRequest, 100)
	go func() {
		defer close(said)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			s.words.Add(1)
			s.waited.Store(m.WaitedUs)
			said <- m
		}
	}()
	err := rpc.SaysWaiting(stream, 1)
	m := <-said
	for step, pace := m.GetStep(), (rpc.Pace{}); err == nil && m != nil; m = <-said {
		if step < m.Until && s.dried(step) {
			return s.hold(stream)
		}
		for ; err == nil && step < m.Until && !s.dried(step); step++ {
			var head []byte
			if head, err = (&batch.Table{Step: step, Body: uint64(s.size)}).Append(nil); err == nil {
				err = rpc.SendPart(stream, &pace, head, make([]byte, s.size), nil)
			}
		}
		if step < m.Until && err == nil {
			return s.hold(stream)
		}
	}
	return err
}

// dried says whether a step does not come now.
func (s *bulky) dried(step uint64) bool {
	dry := s.dry.Load()
	return dry > 0 && step >= uint64(dry)
}

// hold says that it waits until the call ends.
func (s *bulky) hold(stream grpc.ServerStream) error {
	return rpc.HoldPart(stream, 1, func() *pb.Waiting { return &pb.Waiting{Reason: "waits for ever"} }, func() error {
		<-stream.Context().Done()
		return stream.Context().Err()
	})
}

// TestSlowLink: a step comes over a link on which it takes longer than nothing may move, and by a stream the rank says meanwhile that it
// is there.
func TestSlowLink(t *testing.T) {
	for _, way := range []client.Way{client.WayStream, client.WayCalls} {
		t.Run(string(way), func(t *testing.T) {
			t.Parallel()
			s := serveBulky(t, 1_900_000)
			s.data.Limit(200_000)
			const stall = 8 * time.Second
			c := open(t.Context(), t, s.planner.Address(), client.Options{Prefetch: -1, Way: way, Stall: stall, SharedDir: "none"})
			begin := time.Now()
			if _, err := c.Next(t.Context()); err != nil {
				t.Fatalf("after %v: %v", time.Since(begin), err)
			}
			if took := time.Since(begin); took <= stall {
				t.Errorf("the step took %v, which is not long", took)
			}
			if n := s.words.Load(); way == client.WayStream && n < 3 { // the first, and those within the step
				t.Errorf("while the step came the rank said %d words", n)
			}
		})
	}
}

// TestForgottenConnections: connections that carry nothing any more, without a word, while new ones work, cost a rank some
// seconds: those with its constructor, those with its planner, and both.
func TestForgottenConnections(t *testing.T) {
	for _, test := range []struct {
		name string
		way  client.Way
		of   func(s *bulky) []*faultproxy.Proxy
		most time.Duration
	}{
		{"constructor, stream", client.WayStream, func(s *bulky) []*faultproxy.Proxy { return []*faultproxy.Proxy{s.data} }, 4 * time.Second},
		{"constructor, calls", client.WayCalls, func(s *bulky) []*faultproxy.Proxy { return []*faultproxy.Proxy{s.data} }, 4 * time.Second},
		{"both", client.WayStream, func(s *bulky) []*faultproxy.Proxy { return []*faultproxy.Proxy{s.data, s.planner} }, 9 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := serveBulky(t, 1000)
			c := open(t.Context(), t, s.planner.Address(), client.Options{Prefetch: -1, Way: test.way, SharedDir: "none"})
			for step := range 6 {
				if step == 3 {
					for _, p := range test.of(s) {
						p.Forget()
					}
				}
				begin := time.Now()
				if _, err := c.Next(t.Context()); err != nil {
					t.Fatalf("step %d, after %v: %v", step, time.Since(begin), err)
				}
				if took := time.Since(begin); took > test.most {
					t.Errorf("step %d took %v", step, took)
				} else if step == 3 {
					t.Logf("it took %v", took)
				}
			}
		})
	}
	t.Run("planner", func(t *testing.T) {
		t.Parallel()
		s := serveBulky(t, 1000)
		c := open(t.Context(), t, s.planner.Address(), client.Options{Prefetch: -1, SharedDir: "none"})
		s.planner.Forget()
		begin := time.Now()
		if _, _, err := c.State(t.Context()); err != nil || time.Since(begin) > 9*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}

// TestPastOtherServices: before it has joined a rank hears that what answers is no Millrace service; once it has, a web server in
// place of its planner or constructor, and a proxy that does not reach them, are there for now only.
func TestPastOtherServices(t *testing.T) {
	var code atomic.Int64
	code.Store(404)
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(code.Load())) }))
	web.Config.Protocols = new(http.Protocols)
	web.Config.Protocols.SetUnencryptedHTTP2(true)
	web.Start()
	defer web.Close()
	at := web.Listener.Addr().String()
	_, err := client.Open(t.Context(), at, client.Options{})
	isUser(t, err, "what answers at "+at+" is not a Millrace service (HTTP 404): check address and port")
	for _, answer := range []int64{404, 403, 400, 200, 500, 502, 503} {
		code.Store(answer)
		s := serveBulky(t, 1000)
		c := open(t.Context(), t, s.planner.Address(), client.Options{Prefetch: -1, SharedDir: "none"})
		if _, err := c.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, p := range []*faultproxy.Proxy{s.planner, s.data} {
			p.Forward(at)
			p.Reset()
		}
		time.AfterFunc(time.Second, func() {
			for _, p := range []*faultproxy.Proxy{s.planner, s.data} {
				p.Forward(s.at)
				p.Reset()
			}
		})
		if _, err := c.Next(t.Context()); err != nil {
			t.Errorf("HTTP %d: %v", answer, err)
		}
	}
}

// TestStarvingIsSaid: whatever a rank says while its trainer waits for a step, such as on a stream that it opens again, says that it
// waits.
func TestStarvingIsSaid(t *testing.T) {
	for _, way := range []client.Way{client.WayStream, client.WayCalls} {
		s := serveBulky(t, 1000)
		s.dry.Store(3)
		c := open(t.Context(), t, s.planner.Address(), client.Options{Way: way, SharedDir: "none", Start: client.Beginning})
		for step := range 3 {
			if _, err := c.Next(t.Context()); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
		waiting := &watched{Context: t.Context(), used: make(chan struct{})}
		go func() {
			<-waiting.used
			time.Sleep(time.Second)
			s.data.Reset()
			time.Sleep(time.Second)
			s.dry.Store(100)
			s.data.Reset()
		}()
		if b, err := c.Next(waiting); err != nil || b.Step != 3 {
			t.Fatal(b, err)
		}
		if told := time.Duration(s.waited.Load()) * time.Microsecond; told < 1900*time.Millisecond || told > 5*time.Second {
			t.Errorf("%s: while it waited the rank said that it had waited %v", way, told)
		}
		_, err := c.Next(t.Context())
		before := s.waited.Load()
		if _, err2 := c.Next(t.Context()); err != nil || err2 != nil || s.waited.Load() > before+1e6 {
			t.Errorf("%v, %v: waits that are over count twice: %d, before %d", err, err2, s.waited.Load(), before)
		}
	}
}
