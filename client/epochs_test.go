package client_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// aging is a planner that another one may have replaced: it says which epoch it has.
type aging struct {
	pb.UnimplementedPlannerServer
	epoch atomic.Uint64
	asked atomic.Uint64 // requests
	heard atomic.Uint64 // the highest epoch that requests named
	told  atomic.Uint64 // refusals that requests told of
}

func (a *aging) hear(epoch uint64, refused uint32) uint64 {
	a.heard.Store(max(a.heard.Load(), epoch))
	a.told.Add(uint64(refused))
	a.asked.Add(1)
	return a.epoch.Load()
}

func (a *aging) Join(_ context.Context, req *pb.JoinRequest) (*pb.JoinReply, error) {
	return &pb.JoinReply{Protocol: rpc.Protocol, Constructor: "unix:none", Epoch: a.hear(req.Epoch, req.StaleRefused), NextStep: 3}, nil
}

func (a *aging) State(_ context.Context, req *pb.StateRequest) (*pb.StateReply, error) {
	epoch := a.hear(req.Epoch, req.StaleRefused)
	return &pb.StateReply{Token: []byte{byte(epoch)}, Digest: make([]byte, 32), Epoch: epoch}, nil
}

func (a *aging) Change(_ context.Context, req *pb.ChangeRequest) (*pb.ChangeReply, error) {
	return &pb.ChangeReply{Epoch: a.hear(req.Epoch, req.StaleRefused)}, nil
}

func (a *aging) Status(context.Context, *pb.StatusRequest) (*pb.StatusReply, error) {
	return &pb.StatusReply{}, nil
}

// serve serves the planner until the test ends.
func (a *aging) serve(t *testing.T) (address string) {
	t.Helper()
	address = "unix:" + filepath.Join(t.TempDir(), "s")
	listener, err := rpc.Listen(address, client.Security{})
	if err != nil {
		t.Fatal(err)
	}
	server, err := rpc.NewServer(client.Security{})
	if err != nil {
		t.Fatal(err)
	}
	pb.RegisterPlannerServer(server, a)
	life, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(life, server, listener) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return address
}

// open serves the planner, and opens a client that reads nothing ahead.
func (a *aging) open(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.Open(t.Context(), a.serve(t), client.Options{Prefetch: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestZombieAnswers: what a planner says whose place another one took is no answer, whatever
// was asked, and the one that took it hears how often that was.
func TestZombieAnswers(t *testing.T) {
	p := &aging{}
	p.epoch.Store(2)
	c := p.open(t)
	p.epoch.Store(1)
	for name, ask := range map[string]func(context.Context) error{
		"state":  func(ctx context.Context) error { _, _, err := c.State(ctx); return err },
		"remesh": func(ctx context.Context) error { return c.Remesh(ctx, client.Mesh{DP: 2}, client.Rank{}, 3) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		before, asked := p.asked.Load(), make(chan error, 1)
		go func() { asked <- ask(ctx) }()
		for p.asked.Load() < before+2 && ctx.Err() == nil { // with the second request an answer was refused
			time.Sleep(time.Millisecond)
		}
		if cancel(); <-asked == nil {
			t.Errorf("%s was answered by a planner whose place another one took", name)
		}
	}
	p.told.Store(0) // by requests whose answers were refused
	p.epoch.Store(2)
	if _, _, err := c.State(t.Context()); err != nil || p.heard.Load() != 2 || p.told.Load() < 2 {
		t.Errorf("the planner that took over heard of epoch %d and of %d refusals: %v", p.heard.Load(), p.told.Load(), err)
	}
	told := p.told.Load()
	if _, _, err := c.State(t.Context()); err != nil || p.told.Load() != told {
		t.Errorf("it heard of %d refusals again: %v", p.told.Load()-told, err)
	}
}

// TestPlannersInTurn: a change, and the question for a past state, go to the one planner of several that serves.
func TestPlannersInTurn(t *testing.T) {
	p := &aging{}
	p.epoch.Store(2)
	nobody := "unix:" + filepath.Join(t.TempDir(), "s")
	several := nobody + ", " + p.serve(t)
	token, _, err := client.StateAt(t.Context(), several, 7, client.Security{})
	if err != nil || len(token) != 1 || token[0] != 2 {
		t.Errorf("the state is %v: %v", token, err)
	}
	if _, err := client.Change(t.Context(), several, []byte(`{"weights":{"web":1}}`), client.Security{}); err != nil || p.asked.Load() != 2 {
		t.Errorf("the planner was asked %d times: %v", p.asked.Load(), err)
	}
	var lost *client.LostError
	if _, err := client.Change(t.Context(), nobody+","+nobody, nil, client.Security{}); !errors.As(err, &lost) {
		t.Errorf("of two planners that are not there a client heard %v", err)
	}
}
