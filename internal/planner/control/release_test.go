package control

import (
	"fmt"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/jobspec"
)

// TestRelease: the loaders of a source learn at once which of its blocks are over,
// the others after some steps at the latest, and what a loader heard last is true,
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
				c.members.loaders = append(c.members.loaders, &loader{session: Session(i), place: i})
				c.members.places = append(c.members.places, place{loader: c.members.loaders[i]})
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
				for _, at := range c.placesOf(source) {
					if known[at][source] != before {
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

// TestReleaseAfterMove: no loader hears after a move what was released before it, so that
// none drops what was wanted since; and blocks that are released before they are read are
// not waited for.
func TestReleaseAfterMove(t *testing.T) {
	c := &Core{}
	c.sources.specs, c.sources.indexed, c.sources.ledgers = make([]jobspec.Source, 2), make([]*Indexed, 2), make([]ledger, 2)
	c.members = newMembers(0)
	for range 2 {
		c.data.add()
	}
	c.members.loaders, c.members.places = []*loader{{session: 1}}, make([]place, 1)
	c.release([]plan.Release{{Source: 0, Before: 100}})
	c.members.floors.forget() // as move does
	c.members.loaders = []*loader{{session: 2}}
	for _, b := range []block{{0, 20}, {1, 3}, {1, 4}} {
		c.members.wanted[b] = c.members.loaders[0]
	}
	c.out.now = nil
	c.release([]plan.Release{{Source: 1, Before: 4}})
	if r := c.out.now[0].(Release); len(c.out.now) != 1 || !slices.Equal(r.Source, []int32{1}) || !slices.Equal(r.Before, []int64{4}) {
		t.Errorf("the loader hears %v", c.out.now)
	}
	if _, early := c.members.wanted[block{0, 20}]; !early || len(c.members.wanted) != 2 {
		t.Errorf("waited for: %v", c.members.wanted)
	}
}
