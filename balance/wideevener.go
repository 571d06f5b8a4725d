package balance

import (
	"fmt"
	"math/bits"
)

// shares are the parts of the mean cost of a unit, in 128ths, that a giant may cost on each
// of the units that it is cut over, in the order they are tried: small ones leave more
// room for other items, large ones take fewer units.
var shares = [...]int64{128, 129, 126, 122, 130, 96, 72, 192, 256, 512, 1 << 13}

// giantItem is an item that is cut over several units, as it is on each of them.
type giantItem struct {
	item   int32
	width  int32
	tokens int32
	cost   int64
}

// WideEvener makes the costs of rows of several widths even: the widths follow costs,
// too. It holds the scratch memory of one call. The zero value is ready. A WideEvener is not
// safe for concurrent use.
type WideEvener struct {
	packer Packer
	evener Evener
	wide   Wide
	tokens []int32
	costs  []int64
	binds  []bool      // by item: in the widest row it costs more than a unit that is even enough
	mean   int64       // cost of a unit without those, rounded up
	goal   int64       // cost of a unit that is even enough
	floor  int64       // cost of the costliest unit, at the least
	giants []giantItem // by index of the item
	shorts []int32     // the other items
	length []int32     // of each of them: tokens
	cost   []int64
	bin    []int32
	best   layout
	trial  layout
}

// layout is a row for each item, and the width of each row.
type layout struct {
	row    []int32
	widths []int32
	most   int64 // the largest cost of a row over its width,
	rest   int64 // and of those without an item that binds
}

// worse reports whether others are to be preferred to a layout.
func (l *layout) worse(than *layout) bool {
	return l.most > than.most || l.most == than.most && l.rest > than.rest
}

// Even gives the items that have a row (row[i] is not [Unplaced]) to rows again, so that the
// cost of a row over its width is about the same for all, and changes row in place.
// It returns the width of each row; widths add up to w.Units, and rows that hold nothing
// are the last ones, of width 1. tokens and costs are as for [Evener.Even]. Rows, as
// [WidePacker.Pack] returns them, and the result depend on the items and on w alone.
//
// An item becomes a giant if it does not fit a row of width 1, or costs more than a share of
// the mean unit. Its row is the narrowest power of two that holds its tokens and on whose
// units it costs no more than that. All giants are cut evenly over the units of their
// rows, the other items are packed into the units, and evened as by a thorough
// [Evener], where the pieces of giants stay. Several shares are tried, but those where one
// piece costs too much already, until the largest
// cost of a unit is within 1/512 of the mean; the best result is taken, the rows
// as they were among them.
//
// The best is the one with the least costly unit at the top. An item that costs more than w.Widest
// mean units binds it: it gets a row of that width, the mean is that of the other items
// in the other units, and of results that are alike at the top the best is the one with the least
// costly unit among the rows that no item binds.
//
// The widths belong to the WideEvener and are valid until the next call. Even fails,
// with row unchanged, for what [WidePacker.Pack] and [Evener.Even] refuse.
func (e *WideEvener) Even(tokens []int32, costs []int64, row []int32, w Wide) (widths []int32, err error) {
	if err := e.begin(tokens, costs, row, w); err != nil {
		return nil, err
	}
	for _, share := range shares {
		if e.best.most <= max(e.goal, e.floor) && e.best.rest <= e.goal {
			break
		}
		if !e.divide(row, share) || !e.promising() {
			continue
		}
		placed, err := e.place()
		if err != nil {
			return nil, err
		}
		if !placed {
			continue
		}
		if e.measure(); e.best.worse(&e.trial) {
			e.best, e.trial = e.trial, e.best
		}
	}
	copy(row, e.best.row)
	return e.best.widths, nil
}

// begin checks the arguments, and measures the rows as they are.
func (e *WideEvener) begin(tokens []int32, costs []int64, row []int32, w Wide) error {
	if err := w.check(tokens, 0); err != nil {
		return err
	}
	if len(costs) != len(tokens) || len(row) != len(tokens) {
		return fmt.Errorf("%d costs and %d rows of items for the tokens of %d; each item needs all three", len(costs), len(row), len(tokens))
	}
	if err := checkCosts(costs); err != nil {
		return err
	}
	room := make([]int64, w.Units)
	for i, r := range row {
		if r < Unplaced || int(r) >= w.Units {
			return fmt.Errorf("item %d is in row %d; rows are 0 to %d, or %d for none", i, r, w.Units-1, Unplaced)
		}
		if r != Unplaced {
			room[r] += int64(tokens[i])
		}
	}
	e.wide, e.tokens, e.costs = w, tokens, costs
	e.aim(row)
	e.evener.Thorough = true
	e.trial.row, e.trial.widths = append(e.trial.row[:0], row...), e.trial.widths[:0]
	units := 0
	for r := 0; units < w.Units; r++ {
		width := w.Width(room[r])
		if width > w.Widest || units+int(width) > w.Units {
			return fmt.Errorf("rows have more than %d units, or row %d more than %d", w.Units, r, w.Widest)
		}
		units += int(width)
		e.trial.widths = append(e.trial.widths, width)
	}
	for i, r := range row {
		if int(r) >= len(e.trial.widths) {
			return fmt.Errorf("item %d is in row %d, and %d rows before it have all %d units", i, r, len(e.trial.widths), w.Units)
		}
	}
	e.measure()
	e.best, e.trial = e.trial, e.best
	return nil
}

// aim finds the items that bind, and what units without them cost in the mean.
func (e *WideEvener) aim(row []int32) {
	e.binds = grow(e.binds, len(row))
	clear(e.binds)
	total, units, most := int64(0), e.wide.Units, int64(0)
	for i, r := range row {
		if r != Unplaced {
			total, most = total+e.costs[i], max(most, e.costs[i])
		}
	}
	e.floor = pieceOf(most, e.wide.Widest)
	for found := true; found; {
		e.mean = max(ceilDiv(total, units), 1)
		e.goal, found = e.mean+e.mean>>9, false
		for i, r := range row {
			if r != Unplaced && !e.binds[i] && pieceOf(e.costs[i], e.wide.Widest) > e.goal && units > int(e.wide.Widest) {
				e.binds[i], found = true, true
				total, units = total-e.costs[i], units-int(e.wide.Widest)
			}
		}
	}
}

// divide finds the giants, of the items that have a row, and the widths of their
// rows. It reports false if they take more units than there are.
func (e *WideEvener) divide(row []int32, share int64) bool {
	limit := max(e.mean>>7*share+(e.mean&127)*share>>7, 1)
	e.giants, e.shorts, e.length, e.cost = e.giants[:0], e.shorts[:0], e.length[:0], e.cost[:0]
	units := 0
	for i, n := range e.tokens {
		if row[i] == Unplaced {
			continue
		}
		width := e.wide.Width(int64(n))
		for width < e.wide.Widest && pieceOf(e.costs[i], width) > limit {
			width *= 2
		}
		if width == 1 {
			e.shorts, e.length, e.cost = append(e.shorts, int32(i)), append(e.length, n), append(e.cost, e.costs[i])
			continue
		}
		e.giants = append(e.giants, giantItem{int32(i), width, int32(pieceOf(int64(n), width)), pieceOf(e.costs[i], width)})
		units += int(width)
	}
	return units <= e.wide.Units
}

// promising reports whether the rows of these giants can be better than the best.
func (e *WideEvener) promising() bool {
	least := e.largest()
	return least < e.best.most || least == e.best.most && e.best.rest < e.best.most
}

// largest is what the costliest unit costs at the least: what no unit shares.
func (e *WideEvener) largest() (cost int64) {
	for i := range e.giants {
		cost = max(cost, e.giants[i].cost)
	}
	for _, c := range e.cost {
		cost = max(cost, c)
	}
	return cost
}

// pieceOf is the cost of a row on each of its units, rounded up.
func pieceOf(cost int64, width int32) int64 {
	return (cost + int64(width) - 1) >> bits.TrailingZeros32(uint32(width))
}

// place packs the items that are no giants into units, and evens them. It reports false
// if they do not fit.
func (e *WideEvener) place() (bool, error) {
	e.packer.begun, e.evener.fixed = e.packer.begun[:0], e.evener.fixed[:0]
	for _, g := range e.giants {
		for range g.width {
			e.packer.begun, e.evener.fixed = append(e.packer.begun, g.tokens), append(e.evener.fixed, sized{cost: g.cost, tokens: g.tokens})
		}
	}
	for begun := len(e.evener.fixed); begun < e.wide.Units; begun++ {
		e.evener.fixed = append(e.evener.fixed, sized{})
	}
	if e.packer.packPrefix(e.length, 0, e.wide.Capacity, e.wide.Units, 0).items > 0 {
		return false, nil
	}
	e.packer.write()
	e.bin = append(e.bin[:0], e.packer.bin...)
	if err := e.evener.reset(e.length, e.cost, e.bin, e.wide.Capacity, e.wide.Units); err != nil {
		return false, err
	}
	e.evener.evenAll(e.bin, e.wide.Units)
	e.number()
	return true, nil
}

// number turns units into rows: those of giants, then those that hold something, then
// the others.
func (e *WideEvener) number() {
	t := &e.trial
	t.row, t.widths = grow(t.row, len(e.tokens)), t.widths[:0]
	for i := range t.row {
		t.row[i] = Unplaced
	}
	rowOf := make([]int32, 0, e.wide.Units) // unit -> row
	for r, g := range e.giants {
		t.row[g.item], t.widths = int32(r), append(t.widths, g.width)
		for range g.width {
			rowOf = append(rowOf, int32(r))
		}
	}
	owned := len(rowOf)
	rowOf = rowOf[:e.wide.Units]
	clear(rowOf[owned:])
	for _, b := range e.bin {
		if int(b) >= owned {
			rowOf[b] = 1 // not empty; numbered below
		}
	}
	for b := owned; b < len(rowOf); b++ {
		if rowOf[b] > 0 {
			rowOf[b] = int32(len(t.widths))
			t.widths = append(t.widths, 1)
		}
	}
	for k, b := range e.bin {
		t.row[e.shorts[k]] = rowOf[b]
	}
	used := len(t.widths) - len(e.giants)
	for range e.wide.Units - owned - used {
		t.widths = append(t.widths, 1)
	}
}

// measure finds the largest costs of units of the trial.
func (e *WideEvener) measure() {
	t := &e.trial
	loads, bound := make([]int64, len(t.widths)), make([]bool, len(t.widths))
	for i, r := range t.row {
		if r != Unplaced {
			loads[r] += e.costs[i]
			bound[r] = bound[r] || e.binds[i]
		}
	}
	t.most, t.rest = 0, 0
	for r, load := range loads {
		cost := pieceOf(load, t.widths[r])
		t.most = max(t.most, cost)
		if !bound[r] {
			t.rest = max(t.rest, cost)
		}
	}
}
