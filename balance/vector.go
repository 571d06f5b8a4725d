package balance

import (
	"fmt"
	"math"
	"math/bits"
)

// Dimension is one of several costs of the same items, such as the work of an
// encoder, that of the backbone, or memory. Units may differ between dimensions.
type Dimension struct {
	Name   string  // for errors
	Costs  []int64 // per item, 0 or more
	Weight int64   // how much its unevenness counts, up to 2^20; 0 is 1
}

// MaxDimensions is the number of dimensions of a partition.
const MaxDimensions = 16

// unit is the total of a dimension of the greatest weight after scaling: 16 of
// them sum to less than 2^63, and a load of a 2^24th still has 32 bits.
const unit = 1 << 56

// PartitionVector is [Balancer.Partition] for costs of several dimensions. It
// minimizes the largest weight x max/mean load of any dimension. To compare
// them in integers, each dimension is scaled to a total of 2^56 x its weight over
// the largest one, rounding down.
//
// Items go by decreasing largest scaled cost to the bin whose largest load will be
// least, and pairs of bins exchange items afterwards. Above 2^22 items x bins
// only the bins that are lightest in a dimension, or in all, are looked at.
// It fails where Partition does, and has no other methods to choose from.
func (b *Balancer) PartitionVector(dims []Dimension, o Options) (bin []int32, err error) {
	if len(dims) == 0 || len(dims) > MaxDimensions {
		return nil, fmt.Errorf("%d dimensions; 1 to %d are possible", len(dims), MaxDimensions)
	}
	n := len(dims[0].Costs)
	if err := o.check(n); err != nil {
		return nil, err
	}
	if o.Custom != nil || o.Method != "" && o.Method != MethodAuto {
		return nil, fmt.Errorf("costs of several dimensions have only the method %q", MethodAuto)
	}
	if n > math.MaxInt32/len(dims) {
		return nil, fmt.Errorf("%d items of %d dimensions; at most 2^31 costs are possible", n, len(dims))
	}
	if err := b.vector.scale(dims); err != nil {
		return nil, err
	}
	b.bin = grow(b.bin, n)
	if err := b.levels.partition(n, o, b.vector.flat, b.bin); err != nil {
		return nil, err
	}
	return b.bin, nil
}

// vector is the scratch of partitions with several dimensions.
type vector struct {
	dims      int
	scaled    []int64  // dims for each item
	cost      []int64  // the same of the items being partitioned
	items     []costed // by decreasing largest cost
	sorter    sorter   // of items
	bins      vectorBins
	greedy    greedy
	nothing   []int64 // the costs of no item
	binSorter sorter
	order     [][]costed // per dimension, bins by decreasing load, then by largest load
	light     []int      // per dimension, the lightest bin in order not tried
	used      []bool     // per bin, exchanged in this round
	effort    int        // exchanges that may still be looked at
}

// scale fills scaled.
func (v *vector) scale(dims []Dimension) error {
	v.dims = len(dims)
	v.nothing = grow(v.nothing, len(dims))
	clear(v.nothing)
	heaviest := int64(1)
	for d := range dims {
		heaviest = max(heaviest, dims[d].Weight)
	}
	n := len(dims[0].Costs)
	v.scaled = grow(v.scaled, n*len(dims))
	for d, dim := range dims {
		if len(dim.Costs) != n {
			return fmt.Errorf("dimension %q has %d costs and dimension %q %d; each item has one in each dimension",
				dims[0].Name, n, dim.Name, len(dim.Costs))
		}
		if dim.Weight < 0 || dim.Weight > 1<<20 {
			return fmt.Errorf("dimension %q has weight %d; a weight is 1 to 2^20, or 0 for 1", dim.Name, dim.Weight)
		}
		if err := checkCosts(dim.Costs); err != nil {
			return fmt.Errorf("dimension %q: %w", dim.Name, err)
		}
		total := uint64(0)
		for _, c := range dim.Costs {
			total += uint64(c)
		}
		scale := uint64(unit / heaviest * max(1, dim.Weight))
		for i, c := range dim.Costs {
			high, low := bits.Mul64(uint64(c), scale)
			q, _ := bits.Div64(high, low, max(1, total)) // high < total, as c <= total and scale < 2^64
			v.scaled[i*len(dims)+d] = int64(q)
		}
	}
	return nil
}

// flat partitions the members, or all items if members is nil.
func (v *vector) flat(members []int32, o Options, bin []int32) error {
	v.cost = grow(v.cost, len(bin)*v.dims)
	if members == nil {
		copy(v.cost, v.scaled)
	}
	for i, item := range members {
		copy(v.of(int32(i)), v.scaled[int(item)*v.dims:])
	}
	v.items = grow(v.items, len(bin))
	for i := range v.items {
		v.items[i] = costed{peak(v.of(int32(i))), int32(i)}
	}
	v.items = v.sorter.sort(v.items)
	v.bins.reset(v.dims, o.Bins)
	v.greedy.reset(len(bin), o, v.dims)
	for _, it := range v.items {
		cost := v.of(it.item)
		at := v.greedy.choose(&v.bins, cost)
		bin[it.item] = at
		v.bins.add(at, cost)
		v.greedy.placed(&v.bins, at)
	}
	v.bins.collect(bin)
	v.refine(o.Equal)
	v.bins.write(bin)
	return nil
}

// of returns the costs of an item being partitioned.
func (v *vector) of(item int32) []int64 {
	return v.cost[int(item)*v.dims : int(item+1)*v.dims : int(item+1)*v.dims]
}

// peak is the largest of the loads of one bin.
func peak(loads []int64) int64 {
	most := int64(0)
	for _, x := range loads {
		most = max(most, x)
	}
	return most
}
