package constructor

import (
	"context"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/constructor/deliver"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// mute is a line of a rank that says nothing after its hello.
type mute struct {
	line
	ctx context.Context
}

func (m mute) Recv() (*pb.DeliverRequest, error) { <-m.ctx.Done(); return nil, m.ctx.Err() }

func (m mute) hold(_ func() *pb.Waiting, wait func() error) error { return wait() }

func (m mute) way() string { return deliver.Stream }

// TestHelloOfStarving: what a rank says in its hello of how long it has waited reaches the planner, though it says nothing more.
func TestHelloOfStarving(t *testing.T) {
	c := &Constructor{steps: deliver.New(), opts: Options{Deadline: time.Minute}}
	job := &pb.ConstructorJob{Mesh: &pb.Mesh{Dp: 1, Cp: 1, Pp: 1, Tp: 1}, Buckets: []uint32{0}, Ahead: 8}
	c.steps.Take(job, 1<<30)
	c.steps.Restart(&pb.Restart{Generation: 1})
	c.steps.Admit(&pb.Admit{Rank: &pb.Coordinates{}, Join: 1})
	ctx, cancel := context.WithCancel(t.Context())
	defer c.hearing.Wait()
	defer cancel()
	go c.deliver(ctx, &pb.DeliverRequest{Rank: &pb.Coordinates{}, Join: 1, Generation: 1, Until: 1, WaitedUs: 30e6 + 1}, mute{ctx: ctx})
	c.steps.Usage() // a look begins here
	time.Sleep(1200 * time.Millisecond)
	if w := c.steps.Usage().Trainers; w.Ranks != 1 || w.Most < 0.9 {
		t.Errorf("the planner hears %v", w)
	}
}
