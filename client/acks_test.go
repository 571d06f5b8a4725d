package client_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	wire "google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// planned is a service of empty steps that plans one step beyond what was acknowledged: a step
// is there as soon as the trainer is done with the one before.
type planned struct {
	pb.UnimplementedPlannerServer
	pb.UnimplementedConstructorServer
	address  string
	protocol uint32
	end      uint64

	mu      sync.Mutex // guards the fields below
	changed *sync.Cond
	acked   uint64
	acks    []uint64 // in the order of their coming
	left    bool     // the last word was that the client closes
	asked   []uint64 // steps, by request
	lose    int      // acknowledgements that are lost before one counts
	deaf    int      // joins that are lost before one counts
	moved   bool     // acknowledgements are refused, as the job was moved
	breaks  int      // requests for step 1 that are lost before one counts
	taken   int      // requests that come to a service of others before one counts
	streams bool     // it knows them
	opened  int      // streams
	socket  string   // that ranks get; "": this service shares no memory
	shares  int      // times that they get it
	without []string // why ranks that came by a stream have no memory

	rejoin chan struct{} // if not nil, a rank joins again there, and is answered when it is done with a step
	late   []uint64      // steps of such joins that were refused, as the rank was past them
}

// servePlanned serves until the test ends.
func servePlanned(t *testing.T, p *planned) *planned {
	t.Helper()
	p.changed = sync.NewCond(&p.mu)
	p.address = "unix:" + filepath.Join(t.TempDir(), "s")
	listener, err := rpc.Listen(p.address, client.Security{})
	if err != nil {
		t.Fatal(err)
	}
	server, err := rpc.NewServer(client.Security{})
	if err != nil {
		t.Fatal(err)
	}
	pb.RegisterPlannerServer(server, p)
	pb.RegisterConstructorServer(server, p)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(ctx, server, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return p
}

// refuse is the answer of a service of others, if one has the address. mu is held.
func (p *planned) refuse() error {
	if p.taken--; p.taken < 0 {
		return nil
	}
	if p.taken%2 == 0 {
		return wire.Error(codes.Unimplemented, "unknown service")
	}
	return wire.Error(codes.Unauthenticated, "the service answers who has its access key only")
}

func (p *planned) Join(ctx context.Context, req *pb.JoinRequest) (*pb.JoinReply, error) {
	defer context.AfterFunc(ctx, p.changed.Broadcast)()
	p.mu.Lock()
	defer p.mu.Unlock()
	if req.At != nil && p.rejoin != nil {
		select {
		case p.rejoin <- struct{}{}:
		default:
		}
		for p.acked == 0 && ctx.Err() == nil {
			p.changed.Wait()
		}
		if req.At.Step < p.acked {
			p.late = append(p.late, req.At.Step)
			return nil, rpc.ToStatus(fault.Userf("all ranks said that they are done with the steps before %d", p.acked))
		}
	}
	if err := p.refuse(); err != nil {
		return nil, err
	}
	if p.deaf--; p.deaf >= 0 {
		return nil, rpc.ToStatus(fault.Lostf("the connection broke"))
	}
	return &pb.JoinReply{Protocol: p.protocol, Constructor: p.address, Fetches: true, Join: 1, Epoch: 1}, nil
}

func (p *planned) Ack(_ context.Context, req *pb.AckRequest) (*pb.AckReply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lose--; p.lose >= 0 {
		return nil, rpc.ToStatus(fault.Lostf("the connection broke"))
	}
	p.acks, p.left = append(p.acks, req.Acked), req.Leaves
	if p.moved {
		return nil, wire.Error(codes.OutOfRange, "the job was moved to step 0")
	}
	p.acked = max(p.acked, req.Acked)
	p.changed.Broadcast()
	return &pb.AckReply{}, nil
}

func (p *planned) Batch(req *pb.BatchRequest, stream grpc.ServerStreamingServer[pb.Frame]) error {
	defer context.AfterFunc(stream.Context(), p.changed.Broadcast)()
	p.mu.Lock()
	p.asked = append(p.asked, req.Step)
	if err := p.refuse(); err != nil {
		p.mu.Unlock()
		return err
	}
	if req.Step == 1 && p.breaks > 0 {
		p.breaks--
		p.mu.Unlock()
		return rpc.ToStatus(fault.Lostf("the connection broke"))
	}
	p.acked = max(p.acked, req.Acked)
	for req.Step > p.acked && stream.Context().Err() == nil {
		p.changed.Wait()
	}
	p.mu.Unlock()
	return rpc.SendBody(stream, &pb.BatchHeader{Step: req.Step, EndOfData: req.Step >= p.end}, nil, nil)
}

// Deliver is Batch and Ack on a stream.
func (p *planned) Deliver(stream grpc.BidiStreamingServer[pb.DeliverRequest, pb.Frame]) error {
	if !p.streams {
		return p.UnimplementedConstructorServer.Deliver(stream)
	}
	defer context.AfterFunc(stream.Context(), p.changed.Broadcast)()
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened++
	p.without = append(p.without, m.Unshared)
	step, until, refused := m.Step, uint64(0), error(nil)
	take := func(m *pb.DeliverRequest) {
		p.acks, until = append(p.acks, m.Acked), m.Until
		if refused == nil && p.moved && m.Acked > 0 {
			refused = wire.Error(codes.OutOfRange, "the job was moved to step 0")
		}
		p.acked = max(p.acked, m.Acked)
		p.changed.Broadcast()
	}
	take(m)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			p.mu.Lock()
			take(m)
			p.mu.Unlock()
		}
	}()
	for {
		if err := p.refuse(); err != nil {
			return err
		}
		if step == 1 && p.breaks > 0 {
			p.breaks--
			return rpc.ToStatus(fault.Lostf("the connection broke"))
		}
		for (step >= until || step > p.acked) && stream.Context().Err() == nil && refused == nil {
			p.changed.Wait()
		}
		if refused != nil || stream.Context().Err() != nil {
			return refused
		}
		p.asked = append(p.asked, step)
		table := batch.Table{Step: step, End: step >= p.end}
		head, err := table.Append(nil)
		if err == nil {
			err = rpc.SendPart(stream, nil, head, nil, nil)
		}
		if err != nil {
			return err
		}
		if step++; table.End {
			step = 1 << 60
		}
	}
}

// TestStreamOfSteps: a client has one stream for all steps, and none is asked for by a call; with
// a service that knows none it asks, and so it does if it is to.
func TestStreamOfSteps(t *testing.T) {
	for _, test := range []struct {
		serves bool
		way    client.Way
		opened int
	}{{true, "", 1}, {true, client.WayStream, 1}, {true, client.WayCalls, 0}, {false, "", 0}, {false, client.WayCalls, 0}} {
		for _, prefetch := range []int{-1, 3} {
			p := servePlanned(t, &planned{protocol: rpc.Protocol, end: 9, streams: test.serves})
			c := open(t.Context(), t, p.address, client.Options{Prefetch: prefetch, Way: test.way})
			var err error
			for step := int64(0); err == nil; step++ {
				var b *client.Batch
				if b, err = c.Next(t.Context()); err == nil && b.Step != step {
					t.Fatalf("step %d came for %d", b.Step, step)
				}
			}
			if p.mu.Lock(); !errors.Is(err, io.EOF) || p.opened != test.opened || p.acked != 9 {
				t.Errorf("%+v, %d ahead: %d streams, %d steps acknowledged: %v", test, prefetch, p.opened, p.acked, err)
			}
			p.mu.Unlock()
		}
	}
	p := servePlanned(t, &planned{protocol: rpc.Protocol, end: 9})
	_, err := open(t.Context(), t, p.address, client.Options{Way: client.WayStream}).Next(t.Context())
	isUser(t, err, "Deliver")
	_, err = client.Open(t.Context(), p.address, client.Options{Way: "post"})
	isUser(t, err, `Options.Way is "post"`)
	_, err = open(t.Context(), t, p.address, client.Options{Way: client.WayShared}).Next(t.Context())
	isUser(t, err, "of a version that shares none")
}

// TestJoinsWhileItGoesOn: a client that joins again stands at some step; while the planner thinks,
// the trainer goes on and says so. The planner then refuses it, as no rank stands at that step any more,
// and the client asks again from where it is.
func TestJoinsWhileItGoesOn(t *testing.T) {
	for _, streams := range []bool{false, true} {
		joinsWhileItGoesOn(t, streams)
	}
}

func joinsWhileItGoesOn(t *testing.T, streams bool) {
	p := servePlanned(t, &planned{protocol: rpc.Protocol, end: 3, breaks: 2, streams: streams, rejoin: make(chan struct{}, 1)})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := open(ctx, t, p.address, client.Options{Prefetch: 2})
	for step := range int64(3) {
		if b, err := c.Next(ctx); err != nil || b.Step != step {
			t.Fatalf("step %d: %v, %v", step, b, err)
		}
		if step == 0 {
			<-p.rejoin
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.late, []uint64{0}) {
		t.Errorf("joins at the steps %v came late: nothing was shown", p.late)
	}
}

// TestReadAheadOfThePlan: however far a client reads ahead, and however few steps the service plans
// ahead of it, each step is asked for once and comes; the service hears of every step that it
// waits for, though acknowledgements are lost, and of the last one before Close returns.
func TestReadAheadOfThePlan(t *testing.T) {
	const steps = 12
	for i, prefetch := range []int{-1, 1, 4, 1024, -1, 1, 4, 1024} {
		p := servePlanned(t, &planned{protocol: rpc.Protocol, end: steps, lose: 2, streams: i >= 4})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := open(ctx, t, p.address, client.Options{Prefetch: prefetch})
		for step := range int64(steps) {
			if b, err := c.Next(ctx); err != nil || b.Step != step {
				t.Fatalf("%d ahead: step %d: %v, %v", prefetch, step, b, err)
			}
		}
		if _, err := c.Next(ctx); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		if slices.Sort(p.asked); len(p.asked) != steps+1 || len(slices.Compact(p.asked)) != steps+1 {
			t.Errorf("%d ahead: steps asked for: %v", prefetch, p.asked)
		}
		if p.acked != steps || !slices.IsSorted(p.acks) || prefetch > 0 && (len(p.acks) == 0 || p.acks[len(p.acks)-1] != steps) {
			t.Errorf("%d ahead: the service knows of %d of %d steps by %v", prefetch, p.acked, steps, p.acks)
		}
		p.mu.Unlock()
	}
}

// TestLastWord: the last word of a client that is closed is that nothing more comes of it.
func TestLastWord(t *testing.T) {
	for _, prefetch := range []int{-1, 2} {
		p := servePlanned(t, &planned{protocol: rpc.Protocol, end: 9})
		c := open(t.Context(), t, p.address, client.Options{Prefetch: prefetch})
		for range 3 {
			if _, err := c.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		if !p.left || p.acked != 2 {
			t.Errorf("%d ahead: the service heard of %d steps, and that the client closes: %t", prefetch, p.acked, p.left)
		}
		p.mu.Unlock()
	}
}

// TestMoved: a rank that the job does not take along hears so by the next call, though it has read
// ahead, or by the one that waits; it says that it is there until it is closed.
func TestMoved(t *testing.T) {
	for _, streams := range []bool{false, true} {
		stepsUntilMoved(t, &planned{protocol: rpc.Protocol, end: 100, acked: 1, moved: true, streams: streams}, 0)
		steps := 0
		for pause := 50 * time.Millisecond; pause < time.Minute; pause *= 5 { // a busy machine takes longer to refuse
			if steps = stepsUntilMoved(t, &planned{protocol: rpc.Protocol, end: 100, acked: 5, moved: true, streams: streams}, pause); steps <= 5 {
				break
			}
		}
		if steps > 5 {
			t.Errorf("streams %t: a rank that has read ahead hears so after %d steps", streams, steps)
		}
	}
}

// stepsUntilMoved is how many steps a rank of p takes, with a pause after each, until it hears that the job was moved.
func stepsUntilMoved(t *testing.T, p *planned, pause time.Duration) (steps int) {
	t.Helper()
	c := open(t.Context(), t, servePlanned(t, p).address, client.Options{Prefetch: 4})
	var err error
	for ; err == nil && steps < 10; steps++ {
		if _, err = c.Next(t.Context()); err == nil {
			time.Sleep(pause)
		}
	}
	if _, moved := errors.AsType[*client.MovedError](err); !moved {
		t.Errorf("after %d steps: %v", steps, err)
	}
	isUser(t, err, "the job was moved to step 0")
	if _, _, err := c.State(t.Context()); !strings.Contains(err.Error(), "the job was moved to step 0") {
		t.Errorf("its state: %v", err)
	}
	return steps
}

// TestCloseAcknowledgesNoStepInUse: Close says that the steps before the last batch are done
// with, not that one: a trainer that closes in the middle of a step resumes with it.
func TestCloseAcknowledgesNoStepInUse(t *testing.T) {
	p := servePlanned(t, &planned{protocol: rpc.Protocol, end: 10})
	c := open(t.Context(), t, p.address, client.Options{Prefetch: 3})
	for range 4 {
		if _, err := c.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.acked != 3 {
		t.Errorf("the trainer has step 3, and the service hears that it is at %d", p.acked)
	}
}

// TestProtocol: a client and a service speak the newest version that both know, and refuse each
// other at once if there is none; then they say which of the two to upgrade.
func TestProtocol(t *testing.T) {
	for protocol, upgrade := range map[uint32]string{0: "upgrade the service", rpc.Oldest - 1: "upgrade the service", rpc.Protocol + 1: "upgrade the client"} {
		p := servePlanned(t, &planned{protocol: protocol})
		_, err := client.Open(t.Context(), p.address, client.Options{})
		isUser(t, err, upgrade)
	}
	for protocol := uint32(rpc.Oldest); protocol <= rpc.Protocol; protocol++ {
		p := servePlanned(t, &planned{protocol: protocol, end: 2})
		if _, err := open(t.Context(), t, p.address, client.Options{}).Next(t.Context()); err != nil {
			t.Errorf("a service of protocol %d: %v", protocol, err)
		}
	}
	withService(t, func(ctx context.Context, address string) {
		conn, err := rpc.Dial(address, client.Security{})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, theirs := range []struct {
			lowest, newest, spoken uint32
			upgrade                string
		}{
			{0, 0, 0, "upgrade the client"},
			{rpc.Oldest - 1, rpc.Oldest - 1, 0, "upgrade the client"},
			{rpc.Oldest, 0, rpc.Oldest, ""}, // as clients before protocol 3 say it
			{rpc.Oldest - 1, rpc.Oldest, rpc.Oldest, ""},
			{rpc.Oldest, rpc.Protocol, rpc.Protocol, ""},
			{rpc.Protocol, rpc.Protocol + 1, rpc.Protocol, ""},
			{rpc.Protocol + 1, rpc.Protocol + 2, 0, "upgrade the service"},
		} {
			reply, err := pb.NewPlannerClient(conn).Join(ctx, &pb.JoinRequest{Rank: &pb.Coordinates{}, Protocol: theirs.lowest, Newest: theirs.newest})
			if theirs.upgrade != "" {
				isUser(t, rpc.FromStatus(err), theirs.upgrade)
			} else if err != nil || reply.Protocol != theirs.spoken {
				t.Errorf("a client of %d to %d: protocol %d, %v; want %d", theirs.lowest, theirs.newest, reply.GetProtocol(), err, theirs.spoken)
			}
		}
	})
}

// TestLostJoin: a first join whose answer is lost is made again until the deadline, whose error
// names why.
func TestLostJoin(t *testing.T) {
	p := servePlanned(t, &planned{protocol: rpc.Protocol, deaf: 3})
	open(t.Context(), t, p.address, client.Options{})
	p = servePlanned(t, &planned{protocol: rpc.Protocol, deaf: 1 << 30})
	_, err := client.Open(t.Context(), p.address, client.Options{Deadline: 2 * time.Second})
	if fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "the connection broke") {
		t.Errorf("got %v", err)
	}
}

// TestAddressTaken: a rank that has joined waits for its service while one of others has its address; one that
// has not hears why at once.
func TestAddressTaken(t *testing.T) {
	for _, streams := range []bool{false, true} {
		p := servePlanned(t, &planned{protocol: rpc.Protocol, streams: streams, end: 5})
		c := open(t.Context(), t, p.address, client.Options{Deadline: time.Minute})
		take := func(n int) {
			p.mu.Lock()
			p.taken = n
			p.mu.Unlock()
		}
		take(5)
		for range 3 {
			if _, err := c.Next(t.Context()); err != nil {
				t.Fatalf("streams %v: %v", streams, err)
			}
		}
		p.mu.Lock()
		if p.taken > 0 {
			t.Errorf("streams %v: %d requests did not come", streams, p.taken)
		}
		p.mu.Unlock()

		c = open(t.Context(), t, p.address, client.Options{Prefetch: -1, Deadline: 2 * time.Second})
		take(1 << 30)
		if _, err := c.Next(t.Context()); fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "another service listens there by now") {
			t.Errorf("streams %v: got %v", streams, err)
		}
		if _, err := client.Open(t.Context(), p.address, client.Options{Deadline: time.Minute}); fault.ClassOf(err) != fault.User {
			t.Errorf("streams %v: a first join ends with %v", streams, err)
		}
	}
}

// TestPrefetchOfAShortPlan: against the real service, too, a client may read further ahead than
// the job is planned.
func TestPrefetchOfAShortPlan(t *testing.T) {
	spec := strings.Replace(steered, "batch:", "resources: {prefetch: 1}\nbatch:", 1)
	withServiceOf(t, spec, func(ctx context.Context, address string) {
		c := open(ctx, t, address, client.Options{Prefetch: 8})
		for range 20 {
			if _, err := c.Next(ctx); err != nil {
				t.Fatal(err)
			}
		}
	})
}
