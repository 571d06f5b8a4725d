package planner

import (
	"log/slog"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/jobspec"
)

// TestOrdersWaitForParts: loaders are told what to read and what to let go of when all
// parts are sent, or those who were to get them are gone.
func TestOrdersWaitForParts(t *testing.T) {
	loader := &loaderSession{out: rpc.NewOutbox[*pb.LoaderOrder]()}
	p := &Planner{
		opts: Options{Log: slog.New(slog.DiscardHandler)}, wanted: map[wantKey]*loaderSession{},
		sources: make([]jobspec.Source, 1), indexed: make([]*pb.SourceIndexed, 1), loaders: []*loaderSession{loader},
	}
	p.data.add()
	for n := range 3 {
		p.constructors = append(p.constructors, &constructorSession{number: n, out: rpc.NewOutbox[*pb.ConstructorOrder]()})
	}
	first, second, third := p.constructors[0], p.constructors[1], p.constructors[2]
	orders := func(when string, want int) {
		t.Helper()
		if got := putOut(loader.out); len(got) != want {
			t.Errorf("%s: %d orders, want %d: %v", when, len(got), want, got)
		}
	}
	part := &pb.ConstructorOrder{}
	for _, c := range p.constructors {
		p.sendPart(c, part)
	}
	p.sendPart(first, part)
	p.order([]plan.Effect{plan.Want{Seq: 3}, plan.Release{Before: 2}, plan.Want{Seq: 4}})
	orders("four parts under way", 0)
	p.partSent(first)
	p.partSent(second)
	p.partSent(first)
	orders("one under way", 0)
	p.removeConstructor(third, nil)
	orders("its constructor is gone", 3)
	p.partSent(third)
	p.order([]plan.Effect{plan.Want{Seq: 5}})
	orders("nothing under way", 1)
}
