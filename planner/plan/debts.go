package plan

import (
	"math"
	"math/bits"
	"slices"
)

// debts are what the mix owes each source: its share of all that was drawn, less
// what was drawn of it, in 2^-32 units. A draw changes every debt, but all in
// step with the units drawn, so only one number is written.
//
// The source that is owed most is found among a few that are awake. The others
// sleep: each is owed less than level, and stays so until a number of units that can
// be told when it falls asleep, for a debt is a line over the units drawn. They
// wait in a wheel, by that number.
type debts struct {
	shares []uint64  // 2^32 in all, or all zero
	base   []int64   // of each source: its debt is base + shares*units
	units  uint64    // drawn since shares were set; products wrap around, and their differences do not
	draws  uint64    // since then
	out    []bool    // sources that nothing is drawn from
	pace   []float64 // of each source, units until it is owed one part more, or a little less

	sorted bool    // all below is as it should be
	awake  []int32 // sources
	place  []int32 // of each source that is awake, in awake
	last   int     // the place in awake of the source that behind returned last
	keys   []line  // of awake, and blanks up to a multiple of eight
	tag    uint    // bits of a key that name the source
	wide   bool    // debts have no room in keys
	until  uint64  // units up to which they have room, if they have now
	level  int64
	near   int64 // level was so much less than the highest debt when it was set

	slots [wheelSlots]int32 // of the wheel: the first source of each, plus 1
	next  []int32           // of each sleeping source, the next one in its slot, plus 1
	wake  []uint64          // of each sleeping source, when to wake it, in 2^shift units
	now   uint64            // up to when sources were woken, in 2^shift units
	shift int
}

// line is a debt over the units drawn. A key is such a line too: of a debt with the
// source behind it, counted from the end, so that the greatest key names the first of
// the sources that are owed most.
type line struct {
	base  int64
	share uint64
}

// blank is less than any key.
var blank = line{base: math.MinInt64}

func (l line) owed(units uint64) int64 { return l.base + int64(l.share*units) }

// These affect speed only: how many sources are to be awake, the slots of the wheel,
// each of them about 2^slotBits draws long, and the units that keys have room for.
const (
	fewAwake   = 8
	manyAwake  = 40
	wheelSlots = 256
	slotBits   = 3
	keyUnits   = 1 << 16
)

func (d *debts) owed(i int32) int64 { return line{d.base[i], d.shares[i]}.owed(d.units) }

// mixBy sets the shares from here on.
func (d *debts) mixBy(shares []uint64) {
	for i := range d.base {
		if d.shares != nil {
			d.base[i] = d.owed(int32(i))
		}
	}
	d.shares, d.units, d.draws, d.sorted = shares, 0, 0, false
	d.pace = slices.Grow(d.pace[:0], len(shares))[:len(shares)]
	for i, share := range shares {
		d.pace[i] = (1 - 1.0/(1<<20)) / float64(share) // not looked at if it has none
	}
}

// draw notes that units were drawn of source i. If sources are sorted, behind
// returned it last.
func (d *debts) draw(i int32, units int64) {
	d.units += uint64(units)
	d.draws++
	d.base[i] -= units << owedBits
	if !d.sorted {
		return
	}
	d.keys[d.last].base -= units << owedBits << d.tag
	if d.units>>d.shift != d.now {
		d.wakeUp()
	}
	d.rest(d.last)
}

// undo takes a draw back. The shares must be those that it was made with.
func (d *debts) undo(i int32, units int64) {
	d.units -= uint64(units)
	d.base[i] += units << owedBits
	d.sorted = false
}

// behind returns the source that is owed most, the first of equals, among those
// that have a share or are owed something; -1 if no source is left.
func (d *debts) behind() int32 {
	if !d.sorted || d.units >= d.until && !d.wide {
		d.sort()
	}
	i, most := d.most()
	if i < 0 || most < d.level {
		if d.sort(); len(d.awake) == 0 {
			return -1
		}
		i, most = d.most()
	}
	if len(d.awake) > manyAwake {
		d.raise(max(most-d.near, d.level)) // not below what others sleep by
		i, _ = d.most()
	}
	return i
}

// most returns the source that is owed most of those that are awake, -1 if none is,
// and its debt.
func (d *debts) most() (source int32, debt int64) {
	if len(d.awake) == 0 {
		return -1, 0
	}
	if d.wide {
		return d.compare()
	}
	// Two at a time, and eight to a turn: neither a maximum nor a branch to wait for.
	units, a, b := d.units, blank.base, blank.base
	for k := 0; k < len(d.awake); k += 8 {
		l := (*[8]line)(d.keys[k:])
		a, b = max(a, l[0].owed(units)), max(b, l[1].owed(units))
		a, b = max(a, l[2].owed(units)), max(b, l[3].owed(units))
		a, b = max(a, l[4].owed(units)), max(b, l[5].owed(units))
		a, b = max(a, l[6].owed(units)), max(b, l[7].owed(units))
	}
	key, names := max(a, b), int64(1)<<d.tag-1
	source = int32(names - key&names)
	d.last = int(d.place[source])
	return source, key >> d.tag
}

// compare is most for debts that keys have no room for.
func (d *debts) compare() (source int32, debt int64) {
	debt = math.MinInt64
	for k, i := range d.awake {
		if owed := d.owed(i); owed > debt || owed == debt && i < source {
			source, debt, d.last = i, owed, k
		}
	}
	return source, debt
}

// rouse adds a source to those that are awake.
func (d *debts) rouse(i int32) {
	end := len(d.awake)
	d.awake, d.place[i] = append(d.awake, i), int32(end)
	if end == len(d.keys) {
		d.keys = append(d.keys, blank, blank, blank, blank, blank, blank, blank, blank)
	}
	d.keys[end] = line{d.base[i]<<d.tag + (1<<d.tag - 1 - int64(i)), d.shares[i] << d.tag}
}

// counts says whether a source may be drawn from.
func (l line) counts(units uint64) bool { return l.share > 0 || l.owed(units) > 0 }

// sort sets the level by the debts of all sources, and lets those below it sleep.
func (d *debts) sort() {
	n := len(d.base)
	d.next, d.wake, d.place = slices.Grow(d.next[:0], n)[:n], slices.Grow(d.wake[:0], n)[:n], slices.Grow(d.place[:0], n)[:n]
	d.awake, d.keys = d.awake[:0], d.keys[:0]
	clear(d.slots[:])
	d.shift = bits.Len64(d.units/max(d.draws, 1)) + slotBits
	d.now, d.sorted = d.units>>d.shift, true
	all, most, least := 0, int64(math.MinInt64), int64(math.MaxInt64)
	for i, base := range d.base {
		if l := (line{base, d.shares[i]}); !d.out[i] && l.counts(d.units) {
			owed := l.owed(d.units)
			all, most, least = all+1, max(most, owed), min(least, owed)
		}
	}
	d.tag = uint(bits.Len(uint(n)))
	room := int64(1) << (62 - d.tag) // half of what keys have, for debts and for what is drawn until they are looked at again
	d.until = d.units + uint64(room>>owedBits)
	d.wide = max(most, -least) >= room || room>>owedBits < keyUnits
	d.level = most - d.near
	for i, base := range d.base {
		if l := (line{base, d.shares[i]}); !d.out[i] && l.counts(d.units) && !d.sleep(l, int32(i)) {
			d.rouse(int32(i))
		}
	}
	if len(d.awake) < min(fewAwake, all) {
		d.near += d.near/2 + 1
	}
}

// raise sets the level, and lets sources below it sleep.
func (d *debts) raise(level int64) {
	d.level = level
	for k := len(d.awake) - 1; k >= 0; k-- {
		d.rest(k)
	}
	if len(d.awake) > manyAwake {
		d.near /= 2
	}
}

// rest lets the source at a place of awake sleep if it is below the level for a
// while; it is left out if it does not count any more.
func (d *debts) rest(k int) {
	i := d.awake[k]
	if l := (line{d.base[i], d.shares[i]}); l.counts(d.units) && !d.sleep(l, i) {
		return
	}
	end := len(d.awake) - 1
	moved := d.awake[end]
	d.awake[k], d.keys[k], d.place[moved] = moved, d.keys[end], int32(k)
	d.awake, d.keys[end] = d.awake[:end], blank
}

// sleep puts a source into the wheel if it is below the level for a while, and
// reports whether it did or whether the source has no share, and its debt falls.
func (d *debts) sleep(l line, i int32) bool {
	below := d.level - l.owed(d.units)
	if below <= 0 {
		return false
	}
	if l.share == 0 {
		return true
	}
	// A little too early, so that rounding does not matter.
	left := float64(below) * d.pace[i]
	if d.wake[i] = (d.units + uint64(left)) >> d.shift; d.wake[i] <= d.now {
		return false
	}
	slot := &d.slots[d.wake[i]%wheelSlots]
	d.next[i], *slot = *slot, i+1
	return true
}

// wakeUp wakes the sources whose time has come, or nearly.
func (d *debts) wakeUp() {
	to := d.units >> d.shift
	for range min(to-d.now, wheelSlots) {
		d.now++
		for at := &d.slots[d.now%wheelSlots]; *at > 0; {
			i := *at - 1
			if d.wake[i] > to {
				at = &d.next[i]
				continue
			}
			*at = d.next[i]
			d.rouse(i)
		}
	}
	d.now = to
}
