package trainsim

import (
	"cmp"
	"math/bits"
	"slices"
)

// thetas are the parts of the mean cost of a unit, in 64ths, that a unit's piece of a
// split item may cost: large ones split few items, small ones leave more to even out with.
var thetas = [...]int64{64, 48, 32, 20, 12}

// splitter places items on units where one item may be more than a unit's share: it is
// split over an aligned group of a power of two of units, as in ByteScale's hybrid data
// parallelism.
type splitter struct {
	costs    []int64
	units    int
	overhead int // cost of splitting an item, in parts per thousand of its cost
	widest   int // binary logarithm of the widest group
	order    []int
	widths   []int // of each item's group, binary logarithm
}

// spread returns where each item goes, so that the largest cost of a unit gets small. An
// item gets the smallest group in which its piece costs theta times the mean at most. The
// widest groups are placed first, the costliest item before the others, each on the least
// loaded group of its size. Thetas go down from 1 until a smaller one cannot gain 0.2 %,
// and the best result counts.
func spread(costs []int64, units, overhead int) []place {
	costs = scaled(costs)
	s := &splitter{
		costs: costs, units: units, overhead: overhead, widest: bits.TrailingZeros(uint(units)),
		order: make([]int, len(costs)), widths: make([]int, len(costs)),
	}
	total := int64(0)
	for i, c := range costs {
		s.order[i] = i
		total += c
	}
	slices.SortFunc(s.order, func(a, b int) int { return cmp.Or(cmp.Compare(costs[b], costs[a]), cmp.Compare(a, b)) })
	var best []place
	most := int64(0)
	for k, theta := range thetas {
		mean := s.widen(max(1, total/int64(units)*theta/64)) / int64(units)
		if k > 0 && mean+mean/512 >= most {
			break // the overhead of smaller pieces is more than they can gain
		}
		if places, now := s.place(); k == 0 || now < most {
			best, most = places, now
		}
	}
	return best
}

// scaled are the costs in a unit that leaves room for overheads in 64 bits.
func scaled(costs []int64) []int64 {
	const most, all = 1 << 39, 1 << 51
	unit := max(1, sum(costs)/all)
	for _, c := range costs {
		unit = max(unit, float64(c)/most)
	}
	out := make([]int64, len(costs))
	for i, c := range costs {
		out[i] = int64(float64(c) / unit)
	}
	return out
}

// widen chooses the sizes of groups. It returns the sum of costs with overheads.
func (s *splitter) widen(piece int64) (total int64) {
	for i, c := range s.costs {
		w := 0
		for w < s.widest && s.cost(c, w) > piece {
			w++
		}
		s.widths[i] = w
		total += s.cost(c, w) << w
	}
	return total
}

// cost is the cost of an item on each of 1<<w units, rounded up.
func (s *splitter) cost(c int64, w int) int64 {
	if w == 0 {
		return c
	}
	c += (c*int64(s.overhead) + 999) / 1000
	return (c-1)>>w + 1
}

// place puts the items on groups, the widest first, and returns the largest cost of a
// unit. When a size is at its turn, all units of a group have the same load, since only
// wider groups were loaded before.
func (s *splitter) place() (places []place, most int64) {
	places = make([]place, len(s.costs))
	loads := make([]int64, s.units>>s.widest)
	for w := s.widest; w >= 0; w-- {
		for _, i := range s.order {
			if s.widths[i] != w {
				continue
			}
			g := slices.Index(loads, slices.Min(loads))
			places[i] = place{first: int32(g) << w, width: 1 << w}
			loads[g] += s.cost(s.costs[i], w)
		}
		if w > 0 {
			halves := make([]int64, 2*len(loads))
			for g, load := range loads {
				halves[2*g], halves[2*g+1] = load, load
			}
			loads = halves
		}
	}
	return places, slices.Max(loads)
}
