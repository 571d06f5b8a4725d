package balance

import "fmt"

// Bitonic returns an order of microbatches, as indexes into costs, that is small
// at both ends and large in the middle: in a pipeline nothing overlaps with its
// first and last microbatches, so they should be the short ones. The smallest
// comes first, the next one last, and so on inwards; equal ones by index.
func Bitonic(costs []int64) []int32 {
	order := make([]costed, len(costs))
	for i, c := range costs {
		order[i] = costed{c, int32(i)}
	}
	order = new(sorter).sort(order)
	places := make([]int32, len(costs))
	front, back := 0, len(costs)-1
	for i := range order {
		item := order[len(order)-1-i].item
		if i%2 == 0 {
			places[front] = item
			front++
		} else {
			places[back] = item
			back--
		}
	}
	return places
}

// Deal gives each of ranks ranks its share of bins with the given loads: entry
// slot x ranks + rank of the result is the bin that the rank works on in that
// microbatch slot. A slot's bins are neighbours in the order of loads, heaviest
// slot first, so ranks that wait for each other in a slot have like work, and no
// rank collects the heavy bins. In a slot the bins go to ranks so that the
// ranks' sums are close to each other, by the largest differencing method.
//
// Bins made by a partition are numbered by how it went, the heavy ones often
// first: without Deal, one rank would get them all. [Bitonic] of the slots gives them an
// order in time. The result belongs to the Balancer and is valid until the next call.
// Deal fails if the ranks do not divide the number of bins, and for loads
// that [Balancer.Partition] refuses as costs.
func (b *Balancer) Deal(loads []int64, ranks int) ([]int32, error) {
	if ranks < 1 || ranks > MaxBins || len(loads)%ranks != 0 {
		return nil, fmt.Errorf("%d bins for %d ranks; the ranks, 1 to %d, must divide the bins", len(loads), ranks, MaxBins)
	}
	if err := checkCosts(loads); err != nil {
		return nil, err
	}
	b.sort(loads)
	b.kk.blocks(&b.binSorter, b.items, ranks, b.at)
	b.bin = grow(b.bin, len(loads))
	for i, it := range b.items {
		slot := i / ranks
		b.bin[slot*ranks+int(b.at[i])] = it.item
	}
	return b.bin, nil
}
