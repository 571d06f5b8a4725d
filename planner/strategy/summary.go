package strategy

import (
	"fmt"

	"github.com/millrace-data/millrace/balance"
)

// Module sums up what was balanced, for status pages and checks before a run.
// Costs are in units of its model.
type Module struct {
	Name    string          // text or image
	Model   string          // canonical text of the cost model
	Axis    string          // of distribution
	Buckets balance.Quality // rows, or images, in buckets
	// Lockstep is the cost of a step in which ranks wait for each other after each
	// microbatch: the sum over slots of the largest microbatch there. It is at least
	// Buckets.Max, which is that of one in which they wait at the end; 0 for images.
	Lockstep int64
}

// String returns a line such as "text over dp by linear(a=1): 8 items in 2 bins: ...".
func (m Module) String() string {
	return fmt.Sprintf("%s over %s by %s: %v", m.Name, m.Axis, m.Model, m.Buckets)
}

// sumUp adds the module of rows.
func (g *Graph) sumUp() {
	s, x, r := g.s, g.scratch, g.s.result
	costs, rank, slot := x.rows, r.Rank, r.Microbatch
	if r.Width != nil {
		costs, rank, slot = r.pieces(costs)
	}
	q, err := x.balancer.Evaluate(costs, rank, balance.Options{Bins: s.ranks(), Equal: true})
	if err != nil {
		g.fail("plan", "summing up: %w", err)
		return
	}
	m := Module{Name: g.kind.String(), Model: g.model.String(), Axis: s.RowAxis(), Buckets: q}
	dp := q.Bins
	loads := make([]int64, dp*r.Microbatches)
	for i, units := range costs {
		loads[int(slot[i])*dp+int(rank[i])] += units
	}
	for slot := range r.Microbatches {
		most := int64(0)
		for _, load := range loads[slot*dp : (slot+1)*dp] {
			most = max(most, load)
		}
		m.Lockstep += most
	}
	g.module = &m
}

// sumUpImages adds the module of images.
func (g *Graph) sumUpImages(at []int32) {
	x := g.scratch
	q, err := x.balancer.Evaluate(x.costs, at, balance.Options{Bins: g.buckets.Len()})
	if err != nil {
		g.fail("plan", "summing up: %w", err)
		return
	}
	g.module = &Module{Name: g.kind.String(), Model: g.model.String(), Axis: g.axis, Buckets: q}
}
