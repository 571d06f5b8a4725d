package balance

// Effort of refinement, in exchanges looked at: as for one dimension, but an
// exchange is the pair of two items, as no order of items helps.
const (
	exchangesPerItem = 64
	exchangesLeast   = 1 << 22
	exchangesPerPair = 64 // of a bin's items this many are looked at, evenly spread
)

// refine is [contents.refine] for several dimensions: a bin is as heavy as its
// largest load, and is paired with bins that are light in the dimension of that load.
func (v *vector) refine(equal bool) {
	x := &v.bins
	v.effort = exchangesLeast + exchangesPerItem*len(v.items)
	v.order = grow(v.order, v.dims+1)
	v.light = grow(v.light, v.dims)
	v.used = grow(v.used, len(x.size))
	bound := v.bound()
	for round := 0; v.effort > 0; round++ {
		heavy := v.sortBins()
		top := heavy[0].cost
		if top <= bound || !v.round(heavy, bound+(top-bound)/2, round, equal) {
			return
		}
	}
}

// bound is a largest load that no partition stays below: the mean one of a
// dimension, or the largest cost.
func (v *vector) bound() int64 {
	bound := int64(0)
	if len(v.items) > 0 {
		bound = v.items[0].cost
	}
	for d := range v.dims {
		total := int64(0)
		for i := d; i < len(v.bins.load); i += v.dims {
			total += v.bins.load[i]
		}
		bound = max(bound, ceilDiv(total, len(v.bins.size)))
	}
	return bound
}

// sortBins sorts the bins by their loads in each dimension, and returns them by
// their largest load.
func (v *vector) sortBins() []costed {
	x := &v.bins
	for d := range v.order {
		v.order[d] = grow(v.order[d], len(x.size))
		for bin := range v.order[d] {
			loads := x.of(int32(bin))
			key := peak(loads)
			if d < v.dims {
				key = loads[d]
			}
			v.order[d][bin] = costed{key, int32(bin)}
		}
		v.order[d] = v.binSorter.sort(v.order[d])
	}
	return v.order[v.dims]
}

// round pairs the bins heavier than limit and reports whether the heaviest was relieved.
func (v *vector) round(heavy []costed, limit int64, round int, equal bool) bool {
	clear(v.used)
	for d := range v.light {
		v.light[d] = len(heavy) - 1
	}
	for i, h := range heavy {
		if h.cost <= limit {
			break
		}
		if v.used[h.item] {
			continue
		}
		v.used[h.item] = true
		if !v.relieve(h, round, equal) && i == 0 {
			return false
		}
	}
	return true
}

// relieve tries the lightest bins in the dimension that a heavy bin's load is in.
func (v *vector) relieve(h costed, round int, equal bool) bool {
	d := 0
	for v.bins.of(h.item)[d] != h.cost {
		d++
	}
	for try := 0; try < partners && v.light[d] >= 0; v.light[d]-- {
		light := v.order[d][v.light[d]].item
		if v.used[light] {
			continue
		}
		try++
		if v.level(h.item, light, round, equal) {
			v.used[light] = true
			return true
		}
	}
	return false
}

// level makes the move or swap after which the larger of two bins' largest loads
// is least, and reports whether there is one that lowers it.
func (v *vector) level(heavy, light int32, round int, equal bool) bool {
	x := &v.bins
	from, to := x.members(heavy), x.members(light)
	from0, step := sample(len(from), round)
	to0, stepTo := sample(len(to), round)
	best, bestFrom, bestTo := peak(x.of(heavy)), -1, -1
	canMove := len(to) < cap(to) && (!equal || len(from) > len(to))
	v.effort -= min(len(from), exchangesPerPair) * min(len(to)+1, exchangesPerPair)
	for i := from0; i < len(from); i += step {
		down := v.of(from[i])
		if canMove {
			if most := v.exchanged(heavy, light, down, v.nothing); most < best {
				best, bestFrom, bestTo = most, i, len(to)
			}
		}
		for j := to0; j < len(to); j += stepTo {
			if most := v.exchanged(heavy, light, down, v.of(to[j])); most < best {
				best, bestFrom, bestTo = most, i, j
			}
		}
	}
	if bestFrom < 0 {
		return false
	}
	v.exchange(heavy, light, bestFrom, bestTo)
	return true
}

// sample selects the items looked at in a round: from first on, every stepth of n.
func sample(n, round int) (first, step int) {
	step = (n + exchangesPerPair - 1) / exchangesPerPair
	if step > 1 {
		first = round % step
	}
	return first, max(1, step)
}

// exchanged is the largest load of two bins if items of these costs changed places.
func (v *vector) exchanged(heavy, light int32, down, up []int64) int64 {
	most := int64(0)
	to := v.bins.of(light)
	for d, load := range v.bins.of(heavy) {
		shift := down[d] - up[d]
		most = max(most, load-shift, to[d]+shift)
	}
	return most
}

// exchange moves item i of the heavy bin to the light one, and item j, if there
// is one, the other way.
func (v *vector) exchange(heavy, light int32, i, j int) {
	x := &v.bins
	from, to := x.members(heavy), x.members(light)
	up := v.nothing
	down := v.of(from[i])
	if j < len(to) {
		up = v.of(to[j])
		from[i], to[j] = to[j], from[i]
	} else {
		x.items[int(x.start[light])+len(to)] = from[i]
		from[i] = from[len(from)-1]
		x.size[heavy]--
		x.size[light]++
	}
	h, l := x.of(heavy), x.of(light)
	for d := range h {
		h[d] += up[d] - down[d]
		l[d] += down[d] - up[d]
	}
}
