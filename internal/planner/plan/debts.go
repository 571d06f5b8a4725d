package plan

import (
	"math"
	"math/bits"
)

// debts are what the mix owes each source: its share of all that was drawn, less
// what was drawn of it, in 2^-32 units. A draw changes every debt, but all in
// step with the units drawn, so that only one number is written.
//
// The source that is owed most is looked for among candidates: those whose debts can
// reach a level before that many more units are drawn. Whoever is at the level or above it then is
// owed more than all others; if nobody is, or the units are drawn, the candidates are chosen again.
type debts struct {
	shares []uint64 // 2^32 in all, or all zero
	base   []int64  // of each source: its debt is base + shares*units
	units  uint64   // drawn since shares were set; products wrap around, and their differences do not
	out    []bool   // sources that nothing is drawn from

	chosen     bool    // all below is as it should be
	candidates []int32 // sources, rising
	keys       []line  // of them, and blanks up to a multiple of eight
	last       int     // the place in candidates of the source that behind returned last
	level      int64   // no other source is owed as much
	until      uint64  // up to these units
	tag        uint    // bits of a key that name its place in candidates
	wide       bool    // debts have no room in keys
}

// line is a debt over the units drawn. A key is such a line too: of a debt with the
// place of its source behind it, counted from the end, so that the greatest key names the
// first of the sources that are owed most.
type line struct {
	base  int64
	share uint64
}

// blank is less than any key.
var blank = line{base: math.MinInt64}

func (l line) owed(units uint64) int64 { return l.base + int64(l.share*units) }

// reach is which part of the mean debt, whatever its sign, is between the level and the greatest debt, and
// what a source of the mean share gains until candidates are chosen again. It affects speed only.
const reach = 6

// mostUnits is how many units are drawn at most until candidates are chosen again: what
// a source gains by them has to fit into a debt.
const mostUnits = 1 << 28

func (d *debts) owed(i int32) int64 { return line{d.base[i], d.shares[i]}.owed(d.units) }

// counts says whether a source may be drawn from.
func (d *debts) counts(i int32) bool { return !d.out[i] && (d.shares[i] > 0 || d.owed(i) > 0) }

// mixBy sets the shares from here on.
func (d *debts) mixBy(shares []uint64) {
	for i := range d.base {
		if d.shares != nil {
			d.base[i] = d.owed(int32(i))
		}
	}
	d.shares, d.units, d.chosen = shares, 0, false
}

// draw notes that units were drawn of source i. If candidates are chosen, behind
// returned it last.
func (d *debts) draw(i int32, units int64) {
	d.units += uint64(units)
	d.base[i] -= units << owedBits
	if d.chosen && !d.wide {
		d.keys[d.last].base -= units << owedBits << d.tag
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
	if len(d.candidates) == 0 {
		return -1
	}
	most := d.most()
	if most < d.level {
		d.choose()
		d.most()
	}
	return d.candidates[d.last]
}

// most finds the candidate that is owed most, and returns its debt.
func (d *debts) most() int64 {
	if d.wide {
		return d.compare()
	}
	// Two at a time, and eight to a turn: neither a maximum nor a branch to wait for.
	units, a, b := d.units, blank.base, blank.base
	for k := 0; k < len(d.keys); k += 8 {
		l := (*[8]line)(d.keys[k:])
		a, b = max(a, l[0].owed(units)), max(b, l[1].owed(units))
		a, b = max(a, l[2].owed(units)), max(b, l[3].owed(units))
		a, b = max(a, l[4].owed(units)), max(b, l[5].owed(units))
		a, b = max(a, l[6].owed(units)), max(b, l[7].owed(units))
	}
	key, names := max(a, b), int64(1)<<d.tag-1
	d.last = int(names - key&names)
	return key >> d.tag
}

// compare is most for debts that keys have no room for.
func (d *debts) compare() int64 {
	debt := int64(math.MinInt64)
	for k, i := range d.candidates {
		if owed := d.owed(i); owed > debt {
			d.last, debt = k, owed
		}
	}
	return debt
}

// choose sets the level by the debts of all sources, and chooses the candidates.
func (d *debts) choose() {
	d.candidates, d.keys, d.chosen = d.candidates[:0], d.keys[:0], true
	all, sum, most, least := uint64(0), uint64(0), int64(math.MinInt64), int64(math.MaxInt64)
	for i := range int32(len(d.base)) {
		if d.counts(i) {
			owed := d.owed(i)
			all, sum, most, least = all+1, sum+uint64(max(owed, -owed))>>owedBits, max(most, owed), min(least, owed)
		}
	}
	if all == 0 {
		d.until = math.MaxUint64
		return
	}
	d.level, d.until = most-int64(sum/all<<owedBits)/reach, d.units+min(sum/reach, mostUnits)+1
	if most >= 1<<61 || least <= -1<<61 {
		d.level = math.MinInt64 // no room to look ahead: all are candidates
	}
	for i := range int32(len(d.base)) {
		if d.counts(i) && (line{d.base[i], d.shares[i]}).owed(d.until) >= d.level {
			d.candidates = append(d.candidates, i)
		}
	}
	d.makeKeys(most, least)
}

// makeKeys makes the keys of the candidates, if there is room for debts between these two
// and for what is drawn until candidates are chosen again.
func (d *debts) makeKeys(most, least int64) {
	d.tag = uint(bits.Len(uint(len(d.candidates))))
	room := int64(1) << (62 - d.tag)
	if d.wide = most >= room || least <= -room || d.until-d.units >= uint64(room)>>owedBits; d.wide {
		return
	}
	for k, i := range d.candidates {
		d.keys = append(d.keys, line{d.base[i]<<d.tag + (1<<d.tag - 1 - int64(k)), d.shares[i] << d.tag})
	}
	for len(d.keys)%8 != 0 {
		d.keys = append(d.keys, blank)
	}
}
