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

	sorted  bool // all below is as it should be
	awake   []line
	sources []int32 // of awake
	debt    []int64 // of awake, when most was asked for
	last    int     // the place in awake of the source that behind returned last
	level   int64
	near    int64 // level was so much less than the highest debt when it was set

	slots [wheelSlots]int32 // of the wheel: the first source of each, plus 1
	next  []int32           // of each sleeping source, the next one in its slot, plus 1
	wake  []uint64          // of each sleeping source, when to wake it, in 2^shift units
	now   uint64            // up to when sources were woken, in 2^shift units
	shift int
}

// line is a debt over the units drawn.
type line struct {
	base  int64
	share uint64
}

func (l line) owed(units uint64) int64 { return l.base + int64(l.share*units) }

// How many sources are to be awake, and the slots of the wheel, affect speed only.
const (
	fewAwake   = 8
	manyAwake  = 30
	wheelSlots = 1024
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
	d.awake[d.last].base = d.base[i]
	d.wakeUp()
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
	most := d.most()
	if !d.sorted || most < d.level || len(d.awake) == 0 {
		if d.sort(); len(d.awake) == 0 {
			return -1
		}
		most = d.most()
	}
	if len(d.awake) > manyAwake {
		d.raise(max(most-d.near, d.level)) // not below what others sleep by
		most = d.most()
	}
	first := int32(math.MaxInt32)
	for k, owed := range d.debt {
		if owed == most && d.sources[k] < first {
			first, d.last = d.sources[k], k
		}
	}
	return first
}

// most returns the highest debt of those who are awake, and notes the debt of each.
func (d *debts) most() int64 {
	most, units := int64(math.MinInt64), d.units
	d.debt = slices.Grow(d.debt[:0], len(d.awake))[:len(d.awake)]
	for k, l := range d.awake {
		owed := l.owed(units)
		d.debt[k] = owed
		most = max(most, owed)
	}
	return most
}

// counts says whether a source may be drawn from.
func (l line) counts(units uint64) bool { return l.share > 0 || l.owed(units) > 0 }

// sort sets the level by the debts of all sources, and lets those below it sleep.
func (d *debts) sort() {
	n := len(d.base)
	d.next, d.wake = slices.Grow(d.next[:0], n)[:n], slices.Grow(d.wake[:0], n)[:n]
	d.awake, d.sources = d.awake[:0], d.sources[:0]
	clear(d.slots[:])
	d.shift = bits.Len64(d.units/max(d.draws, 1)) / 2 * 2
	d.now, d.sorted = d.units>>d.shift, true
	all, most := 0, int64(math.MinInt64)
	for i, base := range d.base {
		if l := (line{base, d.shares[i]}); !d.out[i] && l.counts(d.units) {
			all, most = all+1, max(most, l.owed(d.units))
		}
	}
	d.level = most - d.near
	for i, base := range d.base {
		if l := (line{base, d.shares[i]}); !d.out[i] && l.counts(d.units) && !d.sleep(l, int32(i)) {
			d.awake, d.sources = append(d.awake, l), append(d.sources, int32(i))
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
	if l, i := d.awake[k], d.sources[k]; l.counts(d.units) && !d.sleep(l, i) {
		return
	}
	end := len(d.awake) - 1
	d.awake[k], d.sources[k] = d.awake[end], d.sources[end]
	d.awake, d.sources = d.awake[:end], d.sources[:end]
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
			d.awake, d.sources = append(d.awake, line{d.base[i], d.shares[i]}), append(d.sources, i)
		}
	}
	d.now = to
}
