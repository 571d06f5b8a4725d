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
// The source that is owed most is looked for in blocks of sources whose shares are alike. Each
// has a bound that none of its sources is owed more than, a line over the units like a debt: the
// greatest share of the block, through the greatest debt when the block was last looked at. If the block of the greatest
// bound has not changed since, that is the answer; if it has, it is looked at again.
type debts struct {
	shares []uint64 // 2^32 in all, or all zero
	base   []int64  // of each source: its debt is base + shares*units
	units  uint64   // drawn since shares were set; products wrap around, and their differences do not
	out    []bool   // sources that nothing is drawn from

	chosen bool    // all below is as it should be
	live   int     // sources that may be drawn from
	until  uint64  // up to these units
	tag    uint    // bits of a key that name its source
	keys   []line  // of the sources that may be drawn from, by falling share, and blanks to full blocks
	place  []int32 // source -> its key
	bounds []line  // of blocks, and blanks up to a multiple of four
	seen   []uint64
	wide   bool // debts have no room in keys
}

// line is a debt over the units drawn. A key is such a line too: of a debt with the
// number of its source behind it, counted from the end, so that the greatest key names the
// first of the sources that are owed most.
type line struct {
	base  int64
	share uint64
}

// blockKeys is how many keys a block has: about the root of some hundred sources.
const blockKeys = 16

// lasting stands in debts.seen for a block that need not be looked at before something is drawn of
// it, as its shares are equal. Other values are the units at which it was looked at.
const lasting = math.MaxUint64

// blank is less than any key.
var blank = line{base: math.MinInt64}

func (l line) owed(units uint64) int64 { return l.base + int64(l.share*units) }

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

// draw notes that units were drawn of source i, which behind returned last, or
// nothing was asked since undo.
func (d *debts) draw(i int32, units int64) {
	d.units += uint64(units)
	d.base[i] -= units << owedBits
	if d.chosen && !d.wide {
		at := d.place[i]
		d.keys[at].base -= units << owedBits << d.tag
		d.look(int(at / blockKeys))
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
		block := int(d.place[i] / blockKeys)
		if seen := d.seen[block]; seen == d.units || seen == lasting {
			return i
		}
		d.look(block)
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

// look finds the greatest key of a block, and draws its bound through it.
func (d *debts) look(block int) {
	keys, units := (*[blockKeys]line)(d.keys[block*blockKeys:]), d.units
	a, b := blank.base, blank.base
	for k := 0; k < blockKeys; k += 4 {
		a, b = max(a, keys[k].owed(units)), max(b, keys[k+1].owed(units))
		a, b = max(a, keys[k+2].owed(units)), max(b, keys[k+3].owed(units))
	}
	share := keys[0].share
	d.bounds[block] = line{max(a, b) - int64(share*units), share}
	if d.seen[block] = units; keys[blockKeys-1].share == share {
		d.seen[block] = lasting
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
	d.chosen, d.live, d.until, d.keys = true, 0, math.MaxUint64, d.keys[:0]
	n, most := len(d.base), int64(0)
	for i := range int32(n) {
		if d.counts(i) {
			owed := d.owed(i)
			d.live, most = d.live+1, max(most, owed, -owed)
		}
	}
	d.tag = uint(bits.Len(uint(n)))
	room := int64(1) << (62 - d.tag) // half of it is for what is drawn until keys are made again
	if d.wide = most >= room/2; d.wide || d.live == 0 {
		return
	}
	d.until = d.units + uint64(room/2)>>owedBits
	for i := range int32(n) {
		if d.counts(i) {
			d.keys = append(d.keys, line{d.base[i]<<d.tag + (1<<d.tag - 1 - int64(i)), d.shares[i] << d.tag})
		}
	}
	slices.SortStableFunc(d.keys, func(a, b line) int { return cmp.Compare(b.share, a.share) })
	d.makeBlocks()
}

// makeBlocks divides the keys into blocks. A blank at the end of the last one has the share of the
// key before it, and never a greater debt.
func (d *debts) makeBlocks() {
	names := int64(1)<<d.tag - 1
	d.place = grow(d.place, len(d.base))
	for at, key := range d.keys {
		d.place[names-key.base&names] = int32(at)
	}
	for len(d.keys)%blockKeys != 0 {
		d.keys = append(d.keys, blank)
	}
	d.seen, d.bounds = grow(d.seen, len(d.keys)/blockKeys), d.bounds[:0]
	for block := range d.seen {
		d.bounds = append(d.bounds, line{})
		d.look(block)
	}
	for len(d.bounds)%4 != 0 {
		d.bounds = append(d.bounds, blank)
	}
}

// grow returns s with length n, of undefined content.
func grow[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }
