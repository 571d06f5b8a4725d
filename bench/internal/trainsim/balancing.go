package trainsim

import (
	"fmt"

	"github.com/millrace-data/millrace/balance"
)

// handling is what a strategy does with samples or images.
type handling int

const (
	kept  handling = iota // in arrival order; images with their samples
	dealt                 // by cost
	split                 // by cost, large ones over several ranks or GPUs
)

// recipes are the options of a strategy, which takes the fastest: splitting,
// for example, does not always pay.
var recipes = [strategies][]struct{ samples, images handling }{
	Vanilla:     {{kept, kept}},
	Backbone:    {{dealt, kept}},
	Hybrid:      {{dealt, dealt}},
	HybridSplit: {{dealt, dealt}, {dealt, split}, {split, split}},
}

// place decides where everything goes under a strategy.
func (it *iteration) place(strategy Strategy) (best placement, err error) {
	least := 0.0
	for i, r := range recipes[strategy] {
		p, err := it.follow(r.samples, r.images)
		if err != nil {
			return placement{}, fmt.Errorf("scene %q: placing for %s: %w", it.scene.Name, strategy, err)
		}
		if t := it.time(&p); i == 0 || t < least {
			best, least = p, t
		}
	}
	return best, nil
}

func (it *iteration) follow(samples, images handling) (p placement, err error) {
	s := it.scene
	if s.Packing == NextFit {
		p = s.nextFit(it.samples)
	} else {
		p = s.inOrder(len(it.samples))
	}
	switch samples {
	case dealt:
		p.samples, err = deal(it.cost, s.DP, p.microbatches)
	case split:
		p.samples, err = dealSplit(it.cost, s.DP, p.microbatches, s.SplitCost)
	}
	if err != nil {
		return p, err
	}
	s.keepImages(&p, it.samples)
	if images != kept {
		err = it.dealImages(&p, images)
	}
	return p, err
}

// dealImages deals the images that wait for each other, those of the iteration or
// of each microbatch, over all GPUs.
func (it *iteration) dealImages(p *placement, images handling) error {
	gpus := it.scene.DP * it.scene.group()
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
		var places []place
		var err error
		if images == split {
			places = spread(costs, gpus, it.scene.SplitCost)
		} else {
			places, err = deal(costs, gpus, 1)
		}
		if err != nil {
			return err
		}
		for k, i := range phase {
			p.images[i].first, p.images[i].width = places[k].first, places[k].width
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
		places[i].first = at
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
		at[bin] = place{microbatch: int32(i / ranks), first: int32(i % ranks), width: 1}
	}
	turn := make([]int32, microbatches) // of a slot
	for j, slot := range balance.Bitonic(slots) {
		turn[slot] = int32(j)
	}
	for i := range places {
		places[i] = at[places[i].first]
		places[i].microbatch = turn[places[i].microbatch]
	}
	return places, nil
}

// dealSplit partitions the samples into microbatches that all ranks work on at a
// time, and spreads those of each over the ranks.
func dealSplit(costs []int64, ranks, microbatches, splitCost int) ([]place, error) {
	var b balance.Balancer
	turn, err := b.Partition(costs, balance.Options{Bins: microbatches})
	if err != nil {
		return nil, err
	}
	places := make([]place, len(costs))
	for j := range int32(microbatches) {
		var items []int32
		var part []int64
		for i, c := range costs {
			if turn[i] == j {
				items, part = append(items, int32(i)), append(part, c)
			}
		}
		for k, at := range spread(part, ranks, splitCost) {
			at.microbatch = j
			places[items[k]] = at
		}
	}
	return places, nil
}
