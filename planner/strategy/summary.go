package strategy

import (
	"fmt"
	"strings"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/planner/dgraph"
)

// Module sums up what was balanced, for status pages and checks before a run.
// Costs are in units of its model.
type Module struct {
	Name    string          // text, or image; of some sources: such as image of web, code
	Kind    dgraph.Kind     // of what was balanced
	Sources []string        // whose samples; nil: of all that no other graph of the kind names
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

// sumUp adds the module of rows, by what each costs.
func (g *Graph) sumUp(costs []int64) {
	s, x, r := g.s, g.scratch, g.s.result
	rank, slot := r.Rank, r.Microbatch
	if r.Width != nil {
		costs, rank, slot = r.pieces(costs)
	}
	q, err := x.balancer.Evaluate(costs, rank, balance.Options{Bins: s.ranks(), Equal: true})
	if err != nil {
		g.fail("plan", "summing up: %w", err)
		return
	}
	m := Module{Name: g.title(), Kind: g.kind, Sources: g.sources, Model: g.models(), Axis: s.RowAxis(), Buckets: q}
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

// sumUpParts adds the modules of the graphs of some sources: how even their samples are over
// ranks, in the rows where they are.
func (g *Graph) sumUpParts() {
	s, x := g.s, g.scratch
	for _, part := range s.parts {
		if part.kind != dgraph.Text || part.model == nil {
			continue
		}
		rows := make([]int64, len(s.result.Rank))
		for k, i := range x.items {
			if part.of(s.buf.Source[i]) {
				rows[s.result.RowOf[i]] += x.costs[k]
			}
		}
		part.sumUp(rows)
	}
}

// models is the text of the graph's cost model, with those of graphs that some sources have in its
// place.
func (g *Graph) models() string {
	text := g.model.String()
	for _, part := range g.s.parts {
		if g.sources == nil && part.kind == g.kind && part.model != nil {
			text += fmt.Sprintf(", %s of %s", part.model, strings.Join(part.sources, ", "))
		}
	}
	return text
}

// sumUpImages adds the module of images.
func (g *Graph) sumUpImages(at []int32) {
	x := g.scratch
	q, err := x.balancer.Evaluate(x.costs, at, balance.Options{Bins: g.buckets.Len()})
	if err != nil {
		g.fail("plan", "summing up: %w", err)
		return
	}
	g.module = &Module{Name: g.title(), Kind: g.kind, Sources: g.sources, Model: g.models(), Axis: g.axis, Buckets: q}
}
