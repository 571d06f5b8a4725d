package trainsim

import (
	"fmt"

	"github.com/millrace-data/millrace/balance"
)

// place decides where everything goes under a strategy.
func (it *iteration) place(strategy Strategy) (p placement, err error) {
	s := it.scene
	if s.Packing == NextFit {
		p = s.nextFit(it.samples)
	} else {
		p = s.inOrder(len(it.samples))
	}
	if strategy >= Backbone {
		p.samples, err = deal(it.cost, s.DP, p.microbatches)
	}
	if err == nil {
		s.keepImages(&p, it.samples)
		if strategy >= Hybrid {
			err = it.dealImages(&p)
		}
	}
	if err != nil {
		return p, fmt.Errorf("scene %q: placing for %s: %w", s.Name, strategy, err)
	}
	return p, nil
}

// dealImages deals the images that wait for each other, those of the iteration or
// of each microbatch, over all GPUs.
func (it *iteration) dealImages(p *placement) error {
	phases := make([][]int32, p.microbatches)
	for i := range p.images {
		j := p.images[i].microbatch
		if it.scene.Barrier == PerIteration {
			j = 0
		}
		phases[j] = append(phases[j], int32(i))
	}
	for _, phase := range phases {
		costs := make([]int64, len(phase))
		for k, i := range phase {
			costs[k] = it.images[i]
		}
		places, err := deal(costs, it.scene.DP*it.scene.group(), 1)
		if err != nil {
			return err
		}
		for k, i := range phase {
			p.images[i].unit = places[k].unit
		}
	}
	return nil
}

// deal partitions the samples into the microbatches of all ranks by cost, and
// deals those to ranks and to slots in time.
func deal(costs []int64, ranks, microbatches int) ([]place, error) {
	var b balance.Balancer
	bin, err := b.Partition(costs, balance.Options{Bins: ranks * microbatches})
	if err != nil {
		return nil, err
	}
	places := make([]place, len(costs))
	loads := make([]int64, ranks*microbatches)
	for i, at := range bin {
		places[i].unit = at
		loads[at] += costs[i]
	}
	order, err := b.Deal(loads, ranks)
	if err != nil {
		return nil, err
	}
	slots := make([]int64, microbatches)
	at := make([]place, len(loads)) // of a bin
	for i, bin := range order {
		slots[i/ranks] += loads[bin]
		at[bin] = place{microbatch: int32(i / ranks), unit: int32(i % ranks)}
	}
	turn := make([]int32, microbatches) // of a slot
	for j, slot := range balance.Bitonic(slots) {
		turn[slot] = int32(j)
	}
	for i := range places {
		places[i] = at[places[i].unit]
		places[i].microbatch = turn[places[i].microbatch]
	}
	return places, nil
}
