package control

import (
	"fmt"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/jobspec"
)

// TestRelease: the loaders of a source are told at once which of its blocks are over,
// the others after some steps at the latest, and what a loader was told last is true,
// after a move back to earlier blocks, too.
func TestRelease(t *testing.T) {
	const sources = 7
	for _, loaders := range []int{1, 3, releaseFanout, 50} {
		t.Run(fmt.Sprintf("%d loaders", loaders), func(t *testing.T) {
			c := &Core{}
			c.sources.specs, c.sources.indexed = make([]jobspec.Source, sources), make([]*Indexed, sources)
			c.sources.ledgers = make([]ledger, sources)
			for range sources {
				c.data.add()
			}
			for i := range loaders {
				c.members.loaders = append(c.members.loaders, &loader{session: Session(i)})
			}
			known, orders := make([][sources]int64, loaders), 0
			var floors [sources]int64
			step := func(source int32, before int64) {
				c.out.now = nil
				c.release([]plan.Release{{Source: source, Before: before}})
				floors[source] = before
				for _, e := range c.out.now {
					orders++
					r := e.(Release)
					for k, s := range r.Source {
						known[r.To][s] = r.Before[k]
					}
				}
				first, every, n := c.loadersOf(source)
				for i := range n {
					if at := first + i*every; known[at][source] != before {
						t.Fatalf("loader %d of source %d knows block %d, not %d", at, source, known[at][source], before)
					}
				}
			}
			const steps = 40
			for k := range int64(steps) {
				step(int32(k%sources), 100-k)
			}
			for range loaders/releaseFanout + 1 {
				step(3, 1000)
			}
			for i := range known {
				if known[i] != floors {
					t.Errorf("loader %d knows %v, not %v", i, known[i], floors)
				}
			}
			if most := (steps + loaders) * (releaseFanout + 1 + loaders/sources); orders > most {
				t.Errorf("%d orders, more than %d", orders, most)
			}
		})
	}
}
