package balance

import (
	"fmt"
	"math/bits"
	"slices"
)

// Span is a group of ranks that share something: First to First+Ranks-1. Ranks is a
// power of two and First a multiple of it, so that the groups of one size can be made
// once, and two groups are either disjoint or nested.
type Span struct {
	First int32
	Ranks int32
}

// maxTiledRanks keeps a load above a group's number in 64 bits.
const maxTiledRanks = 1 << 20

// Tiler gives rows of several widths to microbatch slots of ranks. It holds the
// scratch memory of one call. The zero value is ready. A Tiler is not safe for
// concurrent use.
type Tiler struct {
	sorter  sorter
	order   []costed   // rows by decreasing cost of a piece
	tree    tournament // of the groups of one width
	loads   []int64    // of the ranks of each group
	used    []int32    // slots of each of them
	spans   []Span
	slots   []int32
	rows    []costed // rows of the width being placed
	at      []int32  // the group of each of them
	fill    contents
	slotted slotted
}

// Tile fills slots microbatch slots of ranks ranks: a row of width w takes one slot
// of w ranks that are a [Span], so that they work on it at the same time, each at
// a w-th of its cost. It returns the ranks and the slot of each row, chosen so that
// the ranks' costs are even, and the rows of a slot alike.
//
// widths are powers of two that divide ranks, and add up to ranks x slots; costs
// are 0 and more, and add up to at most [MaxTotal]. The widest rows are placed first, the
// costliest before the others, each on the least loaded span of its width that has
// slots left. Then rows of this width are exchanged between heavy and light spans, as
// in the refinement of [Balancer.Partition], and take the next slots of their spans by
// falling cost. If ranks, or the longest rows of all slots together, are then more than one part in 2^11
// above the mean, there is another try, which counts if its [DealtCost] is less: rows by falling cost of a piece fill
// one slot after the other, those of a slot go to the ranks that have least, and ranks exchange rows
// inside of slots. Ties are broken by index. The result is valid until the next
// call. Time is O(n log n + n log ranks), and a bounded effort of exchanges.
func (t *Tiler) Tile(widths []int32, costs []int64, ranks, slots int) (spans []Span, slot []int32, err error) {
	widest, err := checkTiles(widths, costs, ranks, slots)
	if err != nil {
		return nil, nil, err
	}
	n := len(widths)
	t.order, t.spans, t.slots = grow(t.order, n), grow(t.spans, n), grow(t.slots, n)
	total := uint64(0)
	for i, c := range costs {
		piece := (c + int64(widths[i]) - 1) / int64(widths[i])
		t.order[i] = costed{piece, int32(i)}
		total += uint64(piece)
	}
	t.order = t.sorter.sort(t.order)
	t.loads, t.used = grow(t.loads, ranks/int(widest)), grow(t.used, ranks/int(widest))
	clear(t.loads)
	clear(t.used)
	shift := max(0, bits.Len64(total)+bits.Len(uint(ranks))-63) // a key holds a load and a group
	for w := widest; w > 1; w /= 2 {
		t.place(widths, w, slots, shift)
		t.halve()
	}
	t.place(widths, 1, slots, shift)
	t.bySlots(widths, ranks, slots)
	return t.spans, t.slots, nil
}

// bySlots gives the rows to slots first, if ranks or slots are not even, and keeps what is better.
func (t *Tiler) bySlots(widths []int32, ranks, slots int) {
	if slots < 2 || len(widths)*slots > maxSlotted {
		return
	}
	longest := make([]int64, slots)
	for _, entry := range t.order {
		longest[t.slots[entry.item]] = max(longest[t.slots[entry.item]], entry.cost)
	}
	most, lockstep, total := slices.Max(t.loads), int64(0), int64(0)
	for _, cost := range longest {
		lockstep += cost
	}
	for _, load := range t.loads {
		total += load
	}
	if mean := total / int64(ranks); max(most, lockstep) <= mean+mean>>dealtGoal {
		return
	}
	g := &t.slotted
	if g.tile(&t.sorter, t.order, widths, ranks, slots); g.cost() >= DealtCost(most, lockstep) {
		return
	}
	for k, row := range g.grid {
		if rank := int32(k % ranks); rank%widths[row] == 0 {
			t.spans[row], t.slots[row] = Span{First: rank, Ranks: widths[row]}, int32(k/ranks)
		}
	}
}

// place places the rows of one width. All ranks of a group have the same load then,
// since only wider rows were placed before.
func (t *Tiler) place(widths []int32, w int32, slots, shift int) {
	t.tree.build(len(t.loads), func(g int) uint64 { return uint64(t.loads[g]) >> shift })
	t.rows, t.at = t.rows[:0], t.at[:0]
	for _, entry := range t.order {
		if widths[entry.item] != w {
			continue
		}
		g := t.tree.lightest()
		for int(t.used[g]) == slots {
			t.tree.close()
			g = t.tree.lightest()
		}
		t.rows, t.at = append(t.rows, entry), append(t.at, int32(g))
		t.used[g]++
		t.loads[g] += entry.cost
		t.tree.set(uint64(t.loads[g]) >> shift)
	}
	if len(t.rows) > 0 {
		t.exchange(w, slots, t.rest(widths, w))
	}
}

// exchange refines the places of the rows of one width, and gives them slots. A slot
// left for narrower rows counts at their average cost.
func (t *Tiler) exchange(w int32, slots int, rest int64) {
	c, total := &t.fill, int64(0)
	c.reset(t.rows, t.at, len(t.loads))
	c.swaps = true
	for g, load := range t.loads {
		c.load[g] = load + int64(slots-int(t.used[g]))*rest
		total += c.load[g]
	}
	if mean := total / int64(len(c.load)); len(c.load) > 1 {
		c.refine(&t.sorter, mean, mean, true)
	}
	for g := range t.loads {
		t.loads[g] = c.load[g] - int64(slots-int(t.used[g]))*rest
		mine := c.items(int32(g))
		first := t.used[g] - int32(len(mine)) // the slots before it have wider rows
		for k, it := range mine {
			t.spans[it.item], t.slots[it.item] = Span{First: int32(g) * w, Ranks: w}, first+int32(k)
		}
	}
}

// rest returns the mean cost of the slots that rows narrower than w take.
func (t *Tiler) rest(widths []int32, w int32) int64 {
	total, units := int64(0), int64(0)
	for _, entry := range t.order {
		if n := widths[entry.item]; n < w {
			total, units = total+entry.cost*int64(n), units+int64(n)
		}
	}
	return total / max(units, 1)
}

// halve splits each group in two.
func (t *Tiler) halve() {
	groups := len(t.loads)
	t.loads, t.used = grow2(t.loads), grow2(t.used)
	for g := groups - 1; g >= 0; g-- {
		t.loads[2*g], t.loads[2*g+1] = t.loads[g], t.loads[g]
		t.used[2*g], t.used[2*g+1] = t.used[g], t.used[g]
	}
}

// grow2 returns a slice of twice the length, with s as its first half.
func grow2[T any](s []T) []T { return append(s, s...) }

// checkTiles returns the largest width.
func checkTiles(widths []int32, costs []int64, ranks, slots int) (widest int32, err error) {
	if ranks < 1 || ranks > maxTiledRanks || slots < 1 || len(widths) != len(costs) {
		return 0, fmt.Errorf("%d widths and %d costs for %d slots of %d ranks; each row has both, and 1 to %d ranks have 1 slot or more",
			len(widths), len(costs), slots, ranks, maxTiledRanks)
	}
	units, total := int64(0), int64(0)
	for i, w := range widths {
		if w < 1 || bits.OnesCount32(uint32(w)) != 1 || ranks%int(w) != 0 {
			return 0, fmt.Errorf("row %d has width %d; a power of two that divides %d ranks is needed", i, w, ranks)
		}
		if c := costs[i]; c < 0 || c > MaxTotal-total {
			return 0, fmt.Errorf("row %d has cost %d; a cost is 0 or more, and all together are at most 2^62", i, c)
		}
		units, total, widest = units+int64(w), total+costs[i], max(widest, w)
	}
	if units != int64(ranks)*int64(slots) {
		return 0, fmt.Errorf("rows have %d units and %d ranks have %d slots; a row takes a slot for each unit of its width, and none may be left", units, ranks, slots)
	}
	return widest, nil
}
