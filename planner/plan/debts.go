package plan

import (
	"cmp"
	"math"
	"slices"
)

// debts are what the mix owes each source: its share of all that was drawn, less
// what was drawn of it, in 2^-32 units. A draw changes every debt, but all in
// step with the units drawn, so only one number is written. The source that is owed
// most is found without looking at all of them: see group.
type debts struct {
	shares []uint64 // 2^32 in all, or all zero
	base   []int64  // of each source: its debt is base + shares*units
	units  uint64   // drawn since shares were set; products wrap around, and their differences do not
	out    []bool   // sources that nothing is drawn from

	groups []group // of the sources that count; nil if they have to be made
	heads  []head  // of groups
	since  uint64  // the units at which they were made
	last   int     // the group that the source is the first of which behind returned last
}

// group holds sources of like shares, by what each is owed less what the largest of
// these shares adds to a debt. That key never rises but by undo, so one that is out
// of date is too high, and only the first has to be brought up to date.
type group struct {
	keys    []int64 // falling; as of when each was last looked at
	sources []int32 // of keys; rising where these are equal
}

// head is the first key of a group and its largest share.
type head struct {
	key   int64
	slope uint64
}

func (d *debts) owed(i int32) int64 { return d.base[i] + int64(d.shares[i]*d.units) }

// mixBy sets the shares from here on.
func (d *debts) mixBy(shares []uint64) {
	for i := range d.base {
		if d.shares != nil {
			d.base[i] = d.owed(int32(i))
		}
	}
	d.shares, d.units, d.groups = shares, 0, nil
}

// draw notes that units were drawn of source i. If there are groups, behind
// returned it last.
func (d *debts) draw(i int32, units int64) {
	d.units += uint64(units)
	d.base[i] -= units << owedBits
	switch {
	case d.groups == nil:
	case d.shares[i] == 0 && d.owed(i) <= 0:
		d.groups = nil // it does not count any more
	default:
		d.sink(d.last)
	}
}

// undo takes a draw back. The shares must be those that it was made with.
func (d *debts) undo(i int32, units int64) {
	d.units -= uint64(units)
	d.base[i] += units << owedBits
	d.groups = nil
}

// behind returns the source that is owed most, the first of equals, among those
// that have a share or are owed something; -1 if no source is left.
func (d *debts) behind() int32 {
	if d.groups == nil || d.units-d.since >= 1<<30 {
		d.divide()
	}
	for {
		g := d.first()
		if g < 0 {
			return -1
		}
		if !d.sink(g) {
			d.last = g
			return d.groups[g].sources[0]
		}
	}
}

// first returns the group whose first source is owed most by its key, the one with
// the first source of equals; -1 if there is no group.
func (d *debts) first() int {
	drawn, most := d.units-d.since, int64(math.MinInt64)
	for _, h := range d.heads {
		most = max(most, h.key+int64(h.slope*drawn))
	}
	best := -1
	for k, h := range d.heads {
		if h.key+int64(h.slope*drawn) == most && (best < 0 || d.groups[k].sources[0] < d.groups[best].sources[0]) {
			best = k
		}
	}
	return best
}

// sink brings the key of the first source of a group up to date, and gives it its
// place by that. It reports whether the key changed.
func (d *debts) sink(group int) bool {
	g, h := &d.groups[group], &d.heads[group]
	keys, sources := g.keys, g.sources[:len(g.keys)]
	i, k := sources[0], 1
	key := d.owed(i) - int64(h.slope*(d.units-d.since))
	if key == h.key {
		return false
	}
	for ; k < len(keys) && (keys[k] > key || keys[k] == key && sources[k] < i); k++ {
		keys[k-1], sources[k-1] = keys[k], sources[k]
	}
	keys[k-1], sources[k-1] = key, i
	h.key = keys[0]
	return true
}

// divide makes groups of the sources that count, of about twice as many sources as
// there are groups, or more: a draw looks at all groups and at half of one.
func (d *debts) divide() {
	var all []int32
	for i := range d.base {
		if !d.out[i] && (d.shares[i] > 0 || d.owed(int32(i)) > 0) {
			all = append(all, int32(i))
		}
	}
	slices.SortFunc(all, func(a, b int32) int { return cmp.Or(cmp.Compare(d.shares[b], d.shares[a]), cmp.Compare(a, b)) })
	d.groups, d.heads, d.since = make([]group, 0, 1), d.heads[:0], d.units
	for sources := range slices.Chunk(all, max(32, int(math.Sqrt(float64(2*len(all)))))) {
		g, slope := group{sources: sources}, d.shares[sources[0]]
		slices.SortFunc(sources, func(a, b int32) int { return cmp.Or(cmp.Compare(d.owed(b), d.owed(a)), cmp.Compare(a, b)) })
		for _, i := range sources {
			g.keys = append(g.keys, d.owed(i))
		}
		d.groups, d.heads = append(d.groups, g), append(d.heads, head{g.keys[0], slope})
	}
}
