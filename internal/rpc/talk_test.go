package rpc_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// epochal is a planner of an epoch that ends each session after its first orders.
type epochal struct {
	pb.UnimplementedPlannerServer
	epoch  uint64
	hellos chan uint64 // epochs that roles have heard of
	stay   chan struct{}
}

func (e *epochal) Load(stream grpc.BidiStreamingServer[pb.LoaderReport, pb.LoaderOrder]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	e.hellos <- first.GetHello().GetEpoch()
	if e.epoch > 0 {
		if err := stream.Send(&pb.LoaderOrder{Order: &pb.LoaderOrder_Epoch{Epoch: e.epoch}}); err != nil {
			return err
		}
	}
	if err := stream.Send(&pb.LoaderOrder{Order: &pb.LoaderOrder_Job{Job: &pb.LoaderJob{Seed: e.epoch}}}); err != nil {
		return err
	}
	select {
	case <-e.stay:
	case <-stream.Context().Done():
	}
	return nil
}

// talking runs a role until the function it returns is called; orders are what it takes.
func talking(t *testing.T, role rpc.Role) (orders chan uint64, end func() error) {
	life, stop := context.WithCancel(t.Context())
	orders = make(chan uint64, 100)
	ended := make(chan error, 1)
	say := func(epoch uint64) *pb.LoaderReport {
		return &pb.LoaderReport{Report: &pb.LoaderReport_Hello{Hello: &pb.LoaderHello{Epoch: epoch}}}
	}
	go func() {
		ended <- rpc.Talk(life, role, pb.PlannerClient.Load, say, func(ctx context.Context, s *session) error {
			return s.Each(ctx, func(o *pb.LoaderOrder) error { orders <- o.GetJob().GetSeed(); return nil })
		})
	}()
	return orders, sync.OnceValue(func() error { stop(); return <-ended })
}

// TestTalkGoesOn: a role whose planner ends the session finds the one at another address. It
// says which epoch it has heard of, and takes no order of a planner whose epoch is over.
func TestTalkGoesOn(t *testing.T) {
	first := &epochal{epoch: 3, hellos: make(chan uint64, 100), stay: make(chan struct{})}
	second := &epochal{epoch: 4, hellos: make(chan uint64, 100), stay: make(chan struct{})}
	a, endA := serve(t, "127.0.0.1:0", first)
	b, endB := serve(t, "127.0.0.1:0", second)
	var log syncBuffer
	orders, end := talking(t, role(a+", "+b, slog.New(slog.NewTextHandler(&log, nil))))
	if heard, seed := <-first.hellos, <-orders; heard != 0 || seed != 3 {
		t.Errorf("the first planner hears of epoch %d, and its order has %d", heard, seed)
	}
	close(first.stay) // all its sessions end at once from now on
	if heard, seed := <-second.hellos, <-orders; heard != 3 || seed != 4 {
		t.Errorf("the second planner hears of epoch %d, and its order has %d", heard, seed)
	}
	close(second.stay)
	for n := 0; n < 3; { // it goes round
		select {
		case heard := <-first.hellos:
			if n++; heard != 4 {
				t.Errorf("the first planner hears of epoch %d", heard)
			}
		case seed := <-orders:
			if seed != 4 {
				t.Errorf("an order of epoch %d is taken", seed)
			}
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "another one took over with epoch 4") {
		t.Errorf("the log does not name the former planner:\n%s", log.String())
	}
	endA()
	endB()
}

// TestPatience: a role ends if there is no planner for as long as it was given, and says so.
func TestPatience(t *testing.T) {
	r := role("127.0.0.1:1", slog.New(slog.DiscardHandler))
	r.Patience = 300 * time.Millisecond
	begin := time.Now()
	life, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	greet := func(uint64) *pb.LoaderReport { return &pb.LoaderReport{} }
	err := rpc.Talk(life, r, pb.PlannerClient.Load, greet, func(context.Context, *session) error { return nil })
	if took := time.Since(begin); fault.ClassOf(err) != fault.Lost || err == nil || !strings.Contains(err.Error(), "without a planner") || took < r.Patience {
		t.Errorf("after %v: %v", took, err)
	}
}

// syncBuffer may be written to from anywhere.
type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// mute is a planner that says one thing in each session, and then nothing.
type mute struct {
	pb.UnimplementedPlannerServer
	from chan string // where sessions come from
}

func (m *mute) Load(stream grpc.BidiStreamingServer[pb.LoaderReport, pb.LoaderOrder]) error {
	p, _ := peer.FromContext(stream.Context())
	m.from <- p.Addr.String()
	if err := stream.Send(&pb.LoaderOrder{Order: &pb.LoaderOrder_Beat{Beat: &pb.Beat{}}}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// TestSilentPlanner: a planner that sends beats and falls silent is looked for on another connection:
// the one before may be half open.
func TestSilentPlanner(t *testing.T) {
	t.Parallel() // it mostly waits
	m := &mute{from: make(chan string, 100)}
	at, stop := serve(t, "127.0.0.1:0", m)
	_, end := talking(t, role(at, slog.New(slog.DiscardHandler)))
	if first, second := <-m.from, <-m.from; first == second {
		t.Errorf("both sessions came from %s", first)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	stop()
}
