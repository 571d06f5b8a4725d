package planner

import (
	"context"
	"fmt"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/jobspec"
)

// TestRelease: the loaders of a source are told at once which of its blocks are over,
// the others after some steps at the latest, and what a loader was told last is true,
// after a move back to earlier blocks, too.
func TestRelease(t *testing.T) {
	const sources = 7
	for _, loaders := range []int{1, 3, toldInTurn, 50} {
		t.Run(fmt.Sprintf("%d loaders", loaders), func(t *testing.T) {
			p := &Planner{sources: make([]jobspec.Source, sources), indexed: make([]*pb.SourceIndexed, sources)}
			for range sources {
				p.data.add()
			}
			for range loaders {
				p.loaders = append(p.loaders, &loaderSession{out: rpc.NewOutbox[*pb.LoaderOrder]()})
			}
			known, orders := make([][sources]uint64, loaders), 0
			var floors [sources]uint64
			step := func(source int32, before int64) {
				p.release([]plan.Release{{Source: source, Before: before}})
				floors[source] = uint64(before)
				for i, l := range p.loaders {
					for _, o := range putOut(l.out) {
						orders++
						for k, s := range o.GetRelease().Source {
							known[i][s] = o.GetRelease().Before[k]
						}
					}
				}
				first, every, n := p.loadersOf(source)
				for i := range n {
					if at := first + i*every; known[at][source] != uint64(before) {
						t.Fatalf("loader %d of source %d knows block %d, not %d", at, source, known[at][source], before)
					}
				}
			}
			const steps = 40
			for k := range int64(steps) {
				step(int32(k%sources), 100-k)
			}
			for range loaders/toldInTurn + 1 {
				step(3, 1000)
			}
			for i := range known {
				if known[i] != floors {
					t.Errorf("loader %d knows %v, not %v", i, known[i], floors)
				}
			}
			if most := (steps + loaders) * (toldInTurn + 1 + loaders/sources); orders > most {
				t.Errorf("%d orders, more than %d", orders, most)
			}
		})
	}
}

// putOut returns what is in an outbox.
func putOut(out *rpc.Outbox[*pb.LoaderOrder]) (orders []*pb.LoaderOrder) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = out.Run(ctx, func(o *pb.LoaderOrder) error { orders = append(orders, o); return nil })
	return orders
}
