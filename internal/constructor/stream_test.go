package constructor

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
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

func (m mute) way() deliver.Way { return deliver.Way{Name: deliver.Stream} }

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

// quick is a line of a rank that says how far it is as the test has it.
type quick struct {
	mute
	says     chan *pb.DeliverRequest
	arrivals chan string
}

func (q quick) Recv() (*pb.DeliverRequest, error) {
	select {
	case m := <-q.says:
		return m, nil
	case <-q.ctx.Done():
		return nil, q.ctx.Err()
	}
}

func (q quick) send(got *deliver.Step, _ deliver.Rank) (int, error) {
	return 1000 * int(1+got.Number), nil
}

func (q quick) arrived(size int, took time.Duration) {
	q.arrivals <- fmt.Sprintf("%d bytes in %v", size, took)
}

// TestArrived: a line hears in what time a body arrived, which is when the rank was done with its step, as the rank says.
func TestArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Constructor{steps: deliver.New(), opts: Options{Deadline: time.Hour}}
		job := &pb.ConstructorJob{Mesh: &pb.Mesh{Dp: 1, Cp: 1, Pp: 1, Tp: 1}, Buckets: []uint32{0}, Ahead: 8}
		c.steps.Take(job, 1<<30)
		c.steps.Restart(&pb.Restart{Generation: 1})
		c.steps.Admit(&pb.Admit{Rank: &pb.Coordinates{}, Join: 1})
		for n := range uint64(5) {
			c.steps.Plan(&pb.StepPlan{Generation: 1, Step: n})
			if _, err := c.steps.Claim(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.steps.Done(&deliver.Step{Generation: 1, Number: n})
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer c.hearing.Wait()
		defer cancel()
		q := quick{mute{ctx: ctx}, make(chan *pb.DeliverRequest), make(chan string, 8)}
		hello := &pb.DeliverRequest{Rank: &pb.Coordinates{}, Join: 1, Generation: 1, Until: 2}
		served := make(chan error, 1)
		go func() { served <- c.deliver(ctx, hello, q) }()
		synctest.Wait()
		time.Sleep(70 * time.Millisecond)
		q.says <- &pb.DeliverRequest{Acked: 1, Until: 3} // the first of two steps
		time.Sleep(30 * time.Millisecond)
		q.says <- &pb.DeliverRequest{Acked: 2, Until: 4} // the second, which was sent while the first was on its way
		time.Sleep(time.Second)
		q.says <- &pb.DeliverRequest{Acked: 4, Until: 5}
		synctest.Wait()
		cancel()
		<-served
		close(q.arrivals)
		var got []string
		for one := range q.arrivals {
			got = append(got, one)
		}
		if want := []string{"1000 bytes in 70ms", "3000 bytes in 1.03s"}; !slices.Equal(got, want) {
			t.Errorf("the line heard of %q, want %q", got, want)
		}
	})
}
