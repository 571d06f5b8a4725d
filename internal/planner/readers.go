package planner

import "github.com/millrace-data/millrace/internal/planner/plan"

// loaderOf says which loader reads a block. Sources are dealt to loaders; if
// there are more loaders than sources, the loaders of a source share its blocks.
// Any loader could read any block, so the answer affects speed only.
func (p *Planner) loaderOf(source int32, seq int64) *loaderSession {
	return p.loaders[p.loaderIndex(source, seq)]
}

func (p *Planner) loaderIndex(source int32, seq int64) int {
	first, step, n := p.loadersOf(source)
	return first + step*int(seq%int64(n))
}

// loadersOf returns the loaders of a source: first, first+step, ..., n of them.
func (p *Planner) loadersOf(source int32) (first, step, n int) {
	loaders, sources := len(p.loaders), len(p.indexed)
	first = int(source) % loaders
	return first, sources, (loaders - first + sources - 1) / sources
}

// readersChanged says how much of each source loaders can read at a time, after a
// loader came or went, or a source joined.
func (p *Planner) readersChanged() {
	if p.core == nil || len(p.loaders) == 0 {
		return
	}
	var ev plan.Readers
	for i := range p.indexed {
		first, step, n := p.loadersOf(int32(i))
		r := plan.Reader{Group: first}
		for k := range n {
			l := p.loaders[first+k*step]
			r.Blocks += l.workers
			r.Memory += l.buffer
		}
		ev.Of = append(ev.Of, r)
	}
	p.apply(ev)
}
