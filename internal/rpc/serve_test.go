package rpc_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// slow is a planner whose Status takes until it is let go.
type slow struct {
	pb.UnimplementedPlannerServer
	entered, letGo chan struct{}
	left           atomic.Bool
}

func (s *slow) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusReply, error) {
	close(s.entered)
	defer s.left.Store(true)
	select {
	case <-s.letGo:
		return &pb.StatusReply{Text: "done"}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serveSlow starts a server with one call under way and returns what ends both.
func serveSlow(t *testing.T) (s *slow, cancel func(), served, called chan error) {
	t.Helper()
	s = &slow{entered: make(chan struct{}), letGo: make(chan struct{})}
	l, err := rpc.Listen("127.0.0.1:0", rpc.Security{})
	if err != nil {
		t.Fatal(err)
	}
	server, err := rpc.NewServer(rpc.Security{})
	if err != nil {
		t.Fatal(err)
	}
	pb.RegisterPlannerServer(server, s)
	ctx, stop := context.WithCancel(context.Background())
	served, called = make(chan error, 1), make(chan error, 1)
	go func() { served <- rpc.Serve(ctx, server, l) }()
	conn, err := rpc.Dial(rpc.Address(l), rpc.Security{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); conn.Close() })
	go func() {
		_, err := pb.NewPlannerClient(conn).Status(context.Background(), &pb.StatusRequest{}, grpc.WaitForReady(true))
		called <- err
	}()
	<-s.entered
	return s, stop, served, called
}

func TestServeDrains(t *testing.T) {
	s, cancel, served, called := serveSlow(t)
	cancel()
	select {
	case err := <-served:
		t.Fatalf("Serve returned (%v) with a call under way", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(s.letGo)
	if err := <-called; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestServeCuts(t *testing.T) {
	t.Parallel() // it waits for drainTime
	s, cancel, served, called := serveSlow(t)
	begin := time.Now()
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("stopping took %v", took)
	}
	if !s.left.Load() {
		t.Error("Serve returned before the handler did")
	}
	if err := rpc.FromStatus(<-called); fault.ClassOf(err) != fault.Lost {
		t.Errorf("the caller got %v of class %v, want lost", err, fault.ClassOf(err))
	}
}

func TestServeReportsListener(t *testing.T) {
	l, err := rpc.Listen("127.0.0.1:0", rpc.Security{})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	server, err := rpc.NewServer(rpc.Security{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := rpc.Serve(ctx, server, l); err == nil {
		t.Error("a closed listener was served")
	}
}

func TestOutboxKeepsOrder(t *testing.T) {
	out := rpc.NewOutbox[[2]int]()
	ctx, cancel := context.WithCancel(t.Context())
	const writers, each = 4, 500
	got := make([][]int, writers)
	ran := make(chan error, 1)
	total := 0
	go func() {
		ran <- out.Run(ctx, func(m [2]int) error {
			got[m[0]] = append(got[m[0]], m[1])
			if total++; total == writers*each {
				cancel()
			}
			return nil
		})
	}()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				out.Put([2]int{w, i})
			}
		})
	}
	wg.Wait()
	if err := <-ran; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
	for w := range writers {
		if len(got[w]) != each || !slices.IsSorted(got[w]) {
			t.Errorf("writer %d: %d messages, in order: %v", w, len(got[w]), slices.IsSorted(got[w]))
		}
	}
}

func TestOutboxStopsAtError(t *testing.T) {
	out := rpc.NewOutbox[int]()
	for i := range 3 {
		out.Put(i) // never blocks, whoever takes
	}
	broken := errors.New("broken")
	var sent []int
	err := out.Run(t.Context(), func(m int) error {
		sent = append(sent, m)
		if m == 1 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) || !slices.Equal(sent, []int{0, 1}) {
		t.Errorf("sent %v, %v", sent, err)
	}
}

func TestSenderTakesTurns(t *testing.T) {
	var inside atomic.Int32
	var sent []int // written under the sender's turn
	s := rpc.NewSender(func(m int) error {
		if inside.Add(1) != 1 {
			t.Error("two sends at a time")
		}
		defer inside.Add(-1)
		sent = append(sent, m)
		return nil
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 100 {
				if err := s.Send(i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if len(sent) != 800 {
		t.Errorf("%d of 800 messages", len(sent))
	}
}
