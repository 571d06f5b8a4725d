package planner

import (
	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// floors are the blocks that nobody needs any more: all before a number, by source.
type floors struct {
	changes  uint64 // so far: each may move the floors of many sources
	bySource []floor
}

type floor struct {
	before uint64
	since  uint64 // the change that moved it last
}

// toldInTurn is how many loaders, beside those that read the sources, are told of
// each change. Any loader may hold a block of any source, since it answers where
// another one does not, but that is rare, and to wake hundreds of processes at
// each step takes longer than to plan it.
const toldInTurn = 16

// release tells loaders which blocks to let go of: those of the sources at once,
// the others in turn.
func (p *Planner) release(released []plan.Release) {
	p.floors.move(released, len(p.sources))
	p.data.release(released)
	n := len(p.loaders)
	if n == 0 {
		return
	}
	due := make([]bool, n)
	for _, r := range released {
		first, step, _ := p.loadersOf(r.Source)
		for i := first; i < n; i += step {
			due[i] = true
		}
	}
	for k := range min(toldInTurn, n) {
		due[(int(p.floors.changes%uint64(n))*toldInTurn+k)%n] = true
	}
	for i, l := range p.loaders {
		if due[i] {
			l.out.Put(&pb.LoaderOrder{Order: &pb.LoaderOrder_Release{Release: p.floors.movedSince(l.told)}})
			l.told = p.floors.changes
		}
	}
}

// move notes the floors of some sources.
func (f *floors) move(released []plan.Release, sources int) {
	f.changes++
	for len(f.bySource) < sources {
		f.bySource = append(f.bySource, floor{})
	}
	for _, r := range released {
		f.bySource[r.Source] = floor{uint64(r.Before), f.changes}
	}
}

// movedSince returns the floors that moved after a change.
func (f *floors) movedSince(change uint64) *pb.ReleaseBlocks {
	b := &pb.ReleaseBlocks{}
	for source, x := range f.bySource {
		if x.since > change {
			b.Source, b.Before = append(b.Source, uint32(source)), append(b.Before, x.before)
		}
	}
	return b
}
