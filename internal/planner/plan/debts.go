package plan

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// debts are what the mix owes each source: its share of all that was drawn, less
// what was drawn of it, in 2^-32 units. A draw changes every debt, but all in
// step with the units drawn, so that only one number is written.
//
// The source that is owed most is looked for in groups of sources whose shares are alike. Each
// has a bound that none of its sources is owed more than, a line over the units like a debt: the
// greatest share of the group, through the greatest debt when the group was last looked at. If the group of the greatest
// bound has not changed since, that is the answer; if it has, it is looked at again. Where many sources have one share,
// the order of their debts is that of what was drawn of them: the group has a tree of it, and its bound is always exact.
type debts struct {
	shares []uint64 // 2^32 in all, or all zero
	base   []int64  // of each source: its debt is base + shares*units
	units  uint64   // drawn since debts were base; products wrap around, and their differences do not
	out    []bool   // sources that nothing is drawn from

	chosen bool   // all below is as it should be
	live   int    // sources that may be drawn from
	until  uint64 // up to these units
	tag    uint   // bits of a key that name its source
	groups []group
	place  []place  // source -> its key
	bounds []line   // of groups, and blanks up to a multiple of four
	seen   []uint64 // of groups: the units at which each was looked at; lasting if its bound is exact
	wide   bool     // debts have no room in keys
}

// group has the keys of some of the sources that may be drawn from.
type group struct {
	keys []line  // by falling share, and blanks up to groupKeys; nil if there is a tree
	tree []int64 // the bases of keys of one share are its second half; every entry k before them but the first is the greater of 2k and 2k+1
}

type place struct{ group, at int32 }

// line is a debt over the units drawn. A key is such a line too: of a debt with the
// number of its source behind it, counted from the end, so that the greatest key names the
// first of the sources that are owed most.
type line struct {
	base  int64
	share uint64
}

// groupKeys is how many keys a group has, or, if they have one share, at least has: about the root of some hundred sources.
const groupKeys = 16

// lasting stands in debts.seen for a group that need not be looked at before something is drawn of it.
const lasting = math.MaxUint64

// blank is less than any key.
var blank = line{base: math.MinInt64}

var blanks = slices.Repeat([]line{blank}, groupKeys)

func (l line) owed(units uint64) int64 { return l.base + int64(l.share*units) }

func (d *debts) owed(i int32) int64 { return line{d.base[i], d.shares[i]}.owed(d.units) }

// counts says whether a source may be drawn from.
func (d *debts) counts(i int32) bool { return !d.out[i] && (d.shares[i] > 0 || d.owed(i) > 0) }

// mixBy sets the shares from here on.
func (d *debts) mixBy(shares []uint64) {
	if d.shares != nil {
		d.fold()
	}
	d.shares, d.chosen = shares, false
}

// fold counts units from here on, so that bases can be compared.
func (d *debts) fold() {
	for i := range d.base {
		d.base[i] = d.owed(int32(i))
	}
	d.units = 0
}

// draw notes that units were drawn of source i, which behind returned last, or
// nothing was asked since undo.
func (d *debts) draw(i int32, units int64) {
	d.units += uint64(units)
	d.base[i] -= units << owedBits
	if d.chosen && !d.wide {
		at := d.place[i]
		d.groups[at.group].take(at.at, units<<owedBits<<d.tag)
		d.look(at.group)
	}
	if d.shares[i] == 0 && !d.counts(i) {
		d.chosen = false
	}
}

// undo takes a draw back. The shares must be those that it was made with.
func (d *debts) undo(i int32, units int64) {
	d.units -= uint64(units)
	d.base[i] += units << owedBits
	d.chosen = false
}

// behind returns the source that is owed most, the first of equals, among those
// that have a share or are owed something; -1 if no source is left.
func (d *debts) behind() int32 {
	if !d.chosen || d.units >= d.until {
		d.choose()
	}
	switch {
	case d.live == 0:
		return -1
	case d.wide:
		return d.compare()
	}
	names := int64(1)<<d.tag - 1
	for {
		i := int32(names - d.most()&names)
		group := d.place[i].group
		if seen := d.seen[group]; seen == d.units || seen == lasting {
			return i
		}
		d.look(group)
	}
}

// most returns the greatest bound. Four at a time, of which two maxima are kept: neither a
// maximum nor a branch to wait for.
func (d *debts) most() int64 {
	units, a, b := d.units, blank.base, blank.base
	for k := 0; k < len(d.bounds); k += 4 {
		l := (*[4]line)(d.bounds[k:])
		a, b = max(a, l[0].owed(units)), max(b, l[1].owed(units))
		a, b = max(a, l[2].owed(units)), max(b, l[3].owed(units))
	}
	return max(a, b)
}

// look draws the bound of a group through its greatest key.
func (d *debts) look(group int32) {
	g := &d.groups[group]
	if g.tree != nil {
		d.bounds[group].base = g.tree[1]
		return
	}
	keys, units := (*[groupKeys]line)(g.keys), d.units
	greatest := max(greatestOf(keys[:4], units), greatestOf(keys[4:8], units), greatestOf(keys[8:12], units), greatestOf(keys[12:], units))
	d.bounds[group].base, d.seen[group] = greatest-int64(keys[0].share*units), units
}

// greatestOf returns the greatest of four keys.
func greatestOf(keys []line, units uint64) int64 {
	k := (*[4]line)(keys)
	return max(k[0].owed(units), k[1].owed(units), k[2].owed(units), k[3].owed(units))
}

// take lowers a key.
func (g *group) take(at int32, by int64) {
	if g.tree == nil {
		g.keys[at].base -= by
		return
	}
	k := len(g.tree)/2 + int(at)
	for g.tree[k] -= by; k > 1; k /= 2 {
		g.tree[k/2] = max(g.tree[k], g.tree[k^1])
	}
}

// compare is most for debts that keys have no room for.
func (d *debts) compare() int32 {
	debt, most := int64(math.MinInt64), int32(-1)
	for i := range int32(len(d.base)) {
		if owed := d.owed(i); d.counts(i) && (most < 0 || owed > debt) {
			debt, most = owed, i
		}
	}
	return most
}

// choose makes the keys of the sources that may be drawn from.
func (d *debts) choose() {
	d.fold()
	d.chosen, d.live, d.until = true, 0, math.MaxUint64
	n, most := len(d.base), int64(0)
	for i, owed := range d.base {
		if d.counts(int32(i)) {
			d.live, most = d.live+1, max(most, owed, -owed)
		}
	}
	d.tag = uint(bits.Len(uint(n)))
	room := int64(1) << (62 - d.tag) // half of it is for what is drawn until keys are made again
	if d.wide = most >= room/2; d.wide || d.live == 0 {
		return
	}
	d.until = uint64(room/2) >> owedBits
	keys := make([]line, 0, d.live)
	for i := range int32(n) {
		if d.counts(i) {
			keys = append(keys, line{d.base[i]<<d.tag + (1<<d.tag - 1 - int64(i)), d.shares[i] << d.tag})
		}
	}
	slices.SortStableFunc(keys, func(a, b line) int { return cmp.Compare(b.share, a.share) })
	d.makeGroups(keys)
}

// makeGroups divides the keys into groups: those of a share of which there are enough get one of their own.
func (d *debts) makeGroups(keys []line) {
	d.groups, d.bounds, d.seen, d.place = d.groups[:0], d.bounds[:0], d.seen[:0], grow(d.place, len(d.base))
	var others []line
	for len(keys) > 0 {
		n := 1
		for n < len(keys) && keys[n].share == keys[0].share {
			n++
		}
		if n < groupKeys {
			others = append(others, keys[:n]...)
		} else {
			d.addGroup(keys[:n], treeOf(keys[:n]))
		}
		keys = keys[n:]
	}
	for n := 0; len(others) > 0; others = others[n:] {
		n = min(len(others), groupKeys)
		d.addGroup(others[:n], group{keys: append(slices.Clone(others[:n]), blanks[n:]...)})
	}
	for len(d.bounds)%4 != 0 {
		d.bounds = append(d.bounds, blank)
	}
}

// addGroup adds the group of some keys.
func (d *debts) addGroup(keys []line, g group) {
	number, names := int32(len(d.groups)), int64(1)<<d.tag-1
	for at, key := range keys {
		d.place[names-key.base&names] = place{number, int32(at)}
	}
	d.groups, d.bounds, d.seen = append(d.groups, g), append(d.bounds, line{0, keys[0].share}), append(d.seen, lasting)
	d.look(number)
}

// treeOf returns the group of keys of one share.
func treeOf(keys []line) group {
	leaves := 1 << bits.Len(uint(len(keys)-1))
	tree := make([]int64, 2*leaves)
	for k := range tree {
		tree[k] = blank.base
	}
	for at, key := range keys {
		tree[leaves+at] = key.base
	}
	for k := leaves - 1; k > 0; k-- {
		tree[k] = max(tree[2*k], tree[2*k+1])
	}
	return group{tree: tree}
}

// grow returns s with length n, of undefined content.
func grow[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }
