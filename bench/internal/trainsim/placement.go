package trainsim

import (
	"cmp"
	"slices"
)

// place is where an item is computed.
type place struct {
	microbatch, unit int32
}

// placement is where each sample and image of an iteration is computed.
type placement struct {
	microbatches int     // of each rank
	samples      []place // units are data-parallel ranks
	images       []place // units are GPUs; images in the order of their samples
}

// inOrder places samples as they arrive, count of them in each microbatch, one
// rank's microbatches after the other's.
func (s *Scene) inOrder(n int) placement {
	p := placement{microbatches: s.Microbatches, samples: make([]place, n)}
	for i := range p.samples {
		bin := i / s.Samples
		p.samples[i] = place{microbatch: int32(bin % s.Microbatches), unit: int32(bin / s.Microbatches)}
	}
	return p
}

// nextFit places samples as they arrive into rows of at most the context. Rows are
// microbatches, dealt to the ranks in turn.
func (s *Scene) nextFit(samples []Sample) placement {
	p := placement{samples: make([]place, len(samples))}
	row, used := 0, int64(0)
	for i := range samples {
		if used += samples[i].Tokens; used > s.Context {
			row, used = row+1, samples[i].Tokens
		}
		p.samples[i] = place{microbatch: int32(row / s.DP), unit: int32(row % s.DP)}
	}
	p.microbatches = row/s.DP + 1
	return p
}

// keepImages leaves each image with a GPU of the rank that has its sample: a rank's
// samples, of the iteration or of a microbatch as the barrier stands, are cut into
// blocks of equal count, one for each of its GPUs.
func (s *Scene) keepImages(p *placement, samples []Sample) {
	order := make([]int32, len(samples))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		x, y := p.samples[a], p.samples[b]
		return cmp.Or(cmp.Compare(x.unit, y.unit), cmp.Compare(x.microbatch, y.microbatch))
	})
	together := func(a, b int32) bool {
		x, y := p.samples[a], p.samples[b]
		return x.unit == y.unit && (s.Barrier == PerIteration || x.microbatch == y.microbatch)
	}
	gpu := make([]int32, len(samples)) // of a sample's images
	for len(order) > 0 {
		n := 1
		for n < len(order) && together(order[0], order[n]) {
			n++
		}
		for k, i := range order[:n] {
			gpu[i] = p.samples[i].unit*int32(s.group()) + int32(k*s.group()/n)
		}
		order = order[n:]
	}
	p.images = p.images[:0]
	for i := range samples {
		for range samples[i].Images {
			p.images = append(p.images, place{microbatch: p.samples[i].microbatch, unit: gpu[i]})
		}
	}
}

// loads sums the costs of items on units, a row for each microbatch.
func loads(places []place, costs []int64, microbatches, units int) [][]float64 {
	sums := make([][]float64, microbatches)
	for j := range sums {
		sums[j] = make([]float64, units)
	}
	for i, at := range places {
		sums[at.microbatch][at.unit] += float64(costs[i])
	}
	return sums
}
