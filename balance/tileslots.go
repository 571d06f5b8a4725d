package balance

import (
	"math/bits"
	"slices"
)

// slotted gives rows of several widths to slots first, so that the rows of a slot cost alike, and then to
// ranks.
type slotted struct {
	ranks, slots int
	widths       []int32
	piece        []int64   // per row: its cost on each of its ranks
	free         []int32   // per slot: ranks that have no row
	fits, need   []int64   // per power of two: rows of that width that slots have room for, and those to come
	rows         [][]int32 // per slot, by falling cost of a piece
	grid         []int32   // slot x ranks + rank: the row
	sums         []int64   // per rank
	order        []costed
	effort       int // slots that may still be looked at
}

// maxSlotted is up to how many rows x slots rows are given to slots first: where
// there are more, a rank's rows are many, and slots hardly differ.
const maxSlotted = 1 << 24

// tile gives rows, by falling cost of a piece, to slots and ranks.
func (g *slotted) tile(s *sorter, order []costed, widths []int32, ranks, slots int) {
	g.ranks, g.slots, g.widths = ranks, slots, widths
	g.piece, g.sums = grow(g.piece, len(widths)), grow(g.sums, ranks)
	g.order = grow(g.order, ranks)
	g.fill(order)
	clear(g.sums)
	g.grid = grow(g.grid, ranks*slots)
	for slot := range g.rows {
		g.spread(s, slot)
	}
	g.refine(s)
}

// fill puts each row into the first slot that has room for it, if what is left of the slots then
// holds the rows to come.
func (g *slotted) fill(order []costed) {
	g.free = grow(g.free, g.slots)
	g.rows = grow(g.rows, g.slots)
	for slot := range g.free {
		g.free[slot], g.rows[slot] = int32(g.ranks), g.rows[slot][:0]
	}
	powers := 1 + bits.TrailingZeros(uint(g.ranks))
	g.fits, g.need = grow(g.fits, powers), grow(g.need, powers)
	clear(g.need)
	for k := range g.fits {
		g.fits[k] = int64(g.slots) * int64(g.ranks>>k)
		for _, w := range g.widths {
			g.need[k] += int64(w >> k)
		}
	}
	full := 0 // slots, the first ones
	for _, it := range order {
		w := g.widths[it.item]
		g.piece[it.item] = it.cost
		for full < g.slots && g.free[full] == 0 {
			full++
		}
		slot := full
		for g.free[slot] < w || !g.leaves(slot, w) {
			slot++ // there is one: what is left holds all rows that are to come
		}
		for k := range g.fits {
			g.fits[k] -= int64(g.free[slot]>>k - (g.free[slot]-w)>>k)
			g.need[k] -= int64(w >> k)
		}
		g.free[slot] -= w
		g.rows[slot] = append(g.rows[slot], it.item)
	}
}

// leaves reports whether all other rows fit if a slot takes one. As widths are powers of two, they fit if those of
// each width do, a wider one counted as those that it has room for.
func (g *slotted) leaves(slot int, w int32) bool {
	for k := bits.TrailingZeros32(uint32(w)) + 1; k < len(g.fits); k++ {
		if g.fits[k]-int64(g.free[slot]>>k-(g.free[slot]-w)>>k) < g.need[k] {
			return false
		}
	}
	return true
}

// spread gives the rows of a slot to ranks, the widest first, and of those the costliest first, each to
// the ranks of its width that have least.
func (g *slotted) spread(s *sorter, slot int) {
	at := g.grid[slot*g.ranks : (slot+1)*g.ranks]
	for i := range at {
		at[i] = none
	}
	rows := g.rows[slot]
	slices.SortStableFunc(rows, func(a, b int32) int { return int(g.widths[b]) - int(g.widths[a]) })
	for len(rows) > 0 {
		w := g.widths[rows[0]]
		spans := g.order[:0]
		for first := int32(0); int(first) < g.ranks; first += w {
			if at[first] == none {
				sum := int64(0)
				for r := first; r < first+w; r++ {
					sum += g.sums[r] / int64(w)
				}
				spans = append(spans, costed{sum, first})
			}
		}
		spans = s.sort(spans)
		for k := len(spans) - 1; len(rows) > 0 && g.widths[rows[0]] == w; k-- {
			for r := spans[k].item; r < spans[k].item+w; r++ {
				at[r] = rows[0]
				g.sums[r] += g.piece[rows[0]]
			}
			rows = rows[1:]
		}
		g.order = spans
	}
}

// refine exchanges rows between ranks, inside of slots, in rounds as [dealing] does, so that
// slots stay as they are.
func (g *slotted) refine(s *sorter) {
	total := int64(0)
	for _, sum := range g.sums {
		total += sum
	}
	mean := total / int64(g.ranks)
	g.effort = dealtEffort + dealtEach*len(g.grid)
	for g.effort > 0 {
		g.order = grow(g.order, g.ranks)
		for rank, sum := range g.sums {
			g.order[rank] = costed{sum, int32(rank)}
		}
		g.order = s.sort(g.order)
		g.effort -= g.ranks
		if top := g.order[0].cost; top <= mean+mean>>dealtNearly || !relieve(g.order, mean+(top-mean)/2, g.exchange) {
			return
		}
	}
}

// exchange makes the exchange in a slot, or in two where both have rows of width 1, that leaves
// the ranks in it the smallest largest sum. It reports whether there is one.
func (g *slotted) exchange(heavy, light int32) bool {
	if g.effort <= 0 {
		return false
	}
	before := g.sums[heavy]
	best, in := before, [2]int{-1, -1}
	for slot := range g.slots {
		if most := g.after(slot, heavy, light); most < best {
			best, in = most, [2]int{slot, -1}
		}
		for other := range slot {
			shift := g.shift(slot, heavy, light) + g.shift(other, heavy, light)
			if most := max(before-shift, g.sums[light]+shift); most < best && g.single(slot, heavy, light) && g.single(other, heavy, light) {
				best, in = most, [2]int{slot, other}
			}
		}
	}
	g.effort -= g.slots * g.slots
	for _, slot := range in {
		if slot >= 0 {
			g.swap(slot, heavy, light)
		}
	}
	return in[0] >= 0
}

// single reports whether two ranks have rows of their own in a slot.
func (g *slotted) single(slot int, a, b int32) bool { return g.span(slot, a, b) == 1 }

// span is the number of ranks next to each other that exchange rows if two of them do.
func (g *slotted) span(slot int, a, b int32) int32 {
	at := g.grid[slot*g.ranks:]
	return max(g.widths[at[a]], g.widths[at[b]])
}

// shift is by how much more a rank has than another in a slot.
func (g *slotted) shift(slot int, a, b int32) int64 {
	at := g.grid[slot*g.ranks:]
	return g.piece[at[a]] - g.piece[at[b]]
}

// after returns the largest sum of the ranks that exchange rows if two of them do.
func (g *slotted) after(slot int, a, b int32) (most int64) {
	w := g.span(slot, a, b)
	a, b = a/w*w, b/w*w
	for k := range w {
		shift := g.shift(slot, a+k, b+k)
		most = max(most, g.sums[a+k]-shift, g.sums[b+k]+shift)
	}
	return most
}

func (g *slotted) swap(slot int, a, b int32) {
	w, at := g.span(slot, a, b), g.grid[slot*g.ranks:]
	a, b = a/w*w, b/w*w
	for k := range w {
		shift := g.shift(slot, a+k, b+k)
		g.sums[a+k] -= shift
		g.sums[b+k] += shift
		at[a+k], at[b+k] = at[b+k], at[a+k]
	}
}

// cost is that of rows as they are given to ranks and slots.
func (g *slotted) cost() int64 {
	lockstep := int64(0)
	for _, rows := range g.rows {
		most := int64(0)
		for _, row := range rows {
			most = max(most, g.piece[row])
		}
		lockstep += most
	}
	return DealtCost(slices.Max(g.sums), lockstep)
}
