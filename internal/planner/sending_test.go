package planner

import (
	"context"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/control"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// TestOrdersWaitForParts: loaders get what to read and what to let go of when all parts that
// were cut are sent, or those who were to get them are gone.
func TestOrdersWaitForParts(t *testing.T) {
	p := &Planner{
		loaders:      map[control.Session]*loaderSession{9: {out: rpc.NewOutbox[*pb.LoaderOrder]()}},
		constructors: map[control.Session]*constructorSession{},
	}
	for n := range control.Session(3) {
		p.constructors[n] = &constructorSession{out: rpc.NewOutbox[*pb.ConstructorOrder]()}
	}
	first, second, third := p.constructors[0], p.constructors[1], p.constructors[2]
	cut := func(cs ...*constructorSession) {
		for _, c := range cs {
			c.parts = append(c.parts, &pb.ConstructorOrder{})
		}
	}
	orders := func(when string, want int) {
		t.Helper()
		if got := putOut(p.loaders[9].out); len(got) != want {
			t.Errorf("%s: %d orders, want %d: %v", when, len(got), want, got)
		}
	}
	sent := func(c *constructorSession) {
		c.unsent--
		p.orderLater()
	}
	cut(first, first, second, third)
	p.act(control.Bans{To: 9})
	orders("what no plan waits for", 1)
	p.act(control.Read{To: 9, Seq: 3})
	p.orderLater()
	orders("four parts wait for the log", 0)
	for _, to := range []control.Session{0, 1, 2, 0} {
		p.act(control.Deliver{To: to})
	}
	p.act(control.Release{To: 9, Source: []int32{0}, Before: []int64{2}})
	p.act(control.Read{To: 9, Seq: 4})
	orders("four parts under way", 0)
	sent(first)
	sent(second)
	sent(first)
	orders("one under way", 0)
	p.left(control.ConstructorLeft{Session: 2})
	orders("its constructor is gone", 3)
	sent(third)
	cut(first)
	p.act(control.Deliver{To: 0})
	p.act(control.Read{To: 9, Seq: 6})
	p.act(control.Recall{})
	sent(first)
	orders("the job moved", 0)
	p.act(control.Read{To: 9, Seq: 5})
	orders("nothing under way", 1)
}

// putOut returns what is in an outbox.
func putOut(out *rpc.Outbox[*pb.LoaderOrder]) (orders []*pb.LoaderOrder) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = out.Run(ctx, func(o *pb.LoaderOrder) error { orders = append(orders, o); return nil })
	return orders
}
