package balance

import "math"

// vectorBins are bins with a load in each of several dimensions.
type vectorBins struct {
	dims  int
	load  []int64 // dims for each bin
	size  []int32 // per bin, items
	start []int32 // per bin and one more: where its part of items begins
	items []int32 // by bin, in no order, with room
}

func (x *vectorBins) reset(dims, bins int) {
	x.dims = dims
	x.load = grow(x.load, bins*dims)
	x.size = grow(x.size, bins)
	clear(x.load)
	clear(x.size)
}

func (x *vectorBins) of(bin int32) []int64 {
	return x.load[int(bin)*x.dims : int(bin+1)*x.dims : int(bin+1)*x.dims]
}

func (x *vectorBins) add(bin int32, cost []int64) {
	for d, load := 0, x.of(bin); d < len(load); d++ {
		load[d] += cost[d]
	}
	x.size[bin]++
}

// collect lists the items of each bin.
func (x *vectorBins) collect(bin []int32) {
	x.start = grow(x.start, len(x.size)+1)
	sum := int32(0)
	for at, size := range x.size {
		x.start[at] = sum
		sum += size + room
	}
	x.start[len(x.size)] = sum
	x.items = grow(x.items, int(sum))
	clear(x.size)
	for item, at := range bin {
		x.items[x.start[at]+x.size[at]] = int32(item)
		x.size[at]++
	}
}

func (x *vectorBins) members(bin int32) []int32 {
	return x.items[x.start[bin] : x.start[bin]+x.size[bin] : x.start[bin+1]]
}

func (x *vectorBins) write(bin []int32) {
	for at := range x.size {
		for _, item := range x.members(int32(at)) {
			bin[item] = int32(at)
		}
	}
}

// greedy chooses bins for items one after the other.
type greedy struct {
	quota int32     // items that any bin may have
	more  int       // bins that may still have one more
	trees []winners // by load in each dimension, then by largest load; none to look at all bins
}

// scanLimit is the size up to which every bin is compared for every item.
const scanLimit = 1 << 22 // items x bins

func (g *greedy) reset(items int, o Options, dims int) {
	g.quota, g.more = math.MaxInt32, 0
	if o.Equal {
		g.quota, g.more = int32(items/o.Bins), items%o.Bins
	}
	if items*o.Bins <= scanLimit {
		g.trees = g.trees[:0]
		return
	}
	g.trees = grow(g.trees, dims+1)
	for i := range g.trees {
		g.trees[i].reset(o.Bins)
	}
}

func (g *greedy) open(x *vectorBins, bin int32) bool {
	return x.size[bin] < g.quota || x.size[bin] == g.quota && g.more > 0
}

// choose returns the open bin whose largest load will be least with the cost, of
// equal ones the bin whose loads sum to least, of these the lowest index. With
// trees it is the best of the lightest bin in each.
func (g *greedy) choose(x *vectorBins, cost []int64) int32 {
	best := candidate{bin: none}
	if len(g.trees) == 0 {
		for bin := range int32(len(x.size)) {
			if g.open(x, bin) {
				best.improve(x, bin, cost)
			}
		}
		return best.bin
	}
	for i := range g.trees {
		best.improve(x, g.trees[i].winner(), cost)
	}
	return best.bin
}

// candidate is the best bin so far.
type candidate struct {
	bin       int32
	most, sum int64
}

func (c *candidate) improve(x *vectorBins, bin int32, cost []int64) {
	most, sum := int64(0), int64(0)
	for d, load := range x.of(bin) {
		most = max(most, load+cost[d])
		sum += load
	}
	if c.bin == none || most < c.most || most == c.most && (sum < c.sum || sum == c.sum && bin < c.bin) {
		*c = candidate{bin, most, sum}
	}
}

// placed records that a bin has one more item.
func (g *greedy) placed(x *vectorBins, bin int32) {
	g.update(x, bin)
	if x.size[bin] <= g.quota {
		return
	}
	if g.more--; g.more == 0 && len(g.trees) > 0 {
		for bin := range int32(len(x.size)) { // those with their quota are closed now
			g.update(x, bin)
		}
	}
}

func (g *greedy) update(x *vectorBins, bin int32) {
	open := g.open(x, bin)
	loads := x.of(bin)
	for i := range g.trees {
		key := int64(math.MaxInt64)
		switch {
		case !open:
		case i < len(loads):
			key = loads[i]
		default:
			key = peak(loads)
		}
		g.trees[i].set(bin, key)
	}
}

// winners is a tree of winners: the bin with the least key, the lowest index
// among equals. Unlike a [tournament] it takes a new key for any bin.
type winners struct {
	key    []int64 // of node p, the least of its children's; leaves are last
	leaves int
}

// reset sets the keys of bins bins to 0.
func (w *winners) reset(bins int) {
	w.leaves = 1
	for w.leaves < bins {
		w.leaves *= 2
	}
	w.key = grow(w.key, 2*w.leaves)
	clear(w.key)
	for i := bins; i < w.leaves; i++ {
		w.set(int32(i), math.MaxInt64)
	}
}

func (w *winners) set(bin int32, key int64) {
	p := w.leaves + int(bin)
	w.key[p] = key
	for p /= 2; p > 0; p /= 2 {
		w.key[p] = min(w.key[2*p], w.key[2*p+1])
	}
}

func (w *winners) winner() int32 {
	p := 1
	for p < w.leaves {
		p *= 2
		if w.key[p] != w.key[p/2] {
			p++
		}
	}
	return int32(p - w.leaves)
}
