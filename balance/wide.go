package balance

import (
	"fmt"
	"math"
	"math/bits"
)

// Wide bounds the width of rows: a row of width w has room for w times Capacity
// tokens, for w a power of two, and takes w of the Units of a step.
type Wide struct {
	Capacity int32 // tokens of a row of width 1
	Widest   int32 // of all widths; a power of two
	Units    int   // widths of all rows of a step, added up; at least Widest
}

// Width returns the smallest width of a row that holds the given tokens.
func (w Wide) Width(tokens int64) int32 {
	units := (tokens + int64(w.Capacity) - 1) / int64(w.Capacity)
	if units <= 1 {
		return 1
	}
	return int32(1) << bits.Len64(uint64(units-1))
}

func (w Wide) check(lengths []int32, first int) error {
	switch {
	case w.Widest < 1 || bits.OnesCount32(uint32(w.Widest)) != 1 || w.Units < int(w.Widest):
		return fmt.Errorf("rows of a width up to %d, of %d units in all; a power of two is needed, and at least as many units", w.Widest, w.Units)
	case int64(w.Capacity)*int64(w.Widest) > math.MaxInt32:
		return fmt.Errorf("rows of %d times %d tokens; together at most 2^31-1 are possible", w.Widest, w.Capacity)
	}
	if err := check(nil, 0, w.Capacity); err != nil {
		return err
	}
	if first < 0 || first > len(lengths) {
		return fmt.Errorf("%d items to place first, of %d items", first, len(lengths))
	}
	for i, n := range lengths {
		if most := w.Capacity * w.Widest; n < 1 || n > most {
			return &ItemError{Index: i, Length: n, Capacity: most}
		}
	}
	return nil
}

// Admission decides, item by item in the order of a stream, which giants (items
// longer than w.Capacity) are in the step: those for which units are left, and
// whose tokens keep all that was admitted within the room of the step. The others
// wait for the next step, where they come first. The caller draws items for a step
// until enough tokens are admitted.
type Admission struct {
	Wide
	Tokens int64 // admitted
	taken  int   // units of giants
}

// Admit reports whether an item of the given tokens is in the step; an item that is
// not a giant always is.
func (a *Admission) Admit(tokens int32) bool {
	if tokens > a.Capacity {
		width := int(a.Width(int64(tokens)))
		if a.taken+width > a.Units || a.Tokens+int64(tokens) > int64(a.Units)*int64(a.Capacity) {
			return false
		}
		a.taken += width
	}
	a.Tokens += int64(tokens)
	return true
}

// WidePacker packs items into rows of several widths. It holds the scratch memory
// of one call. The zero value is ready. A WidePacker is not safe for concurrent use.
type WidePacker struct {
	packer Packer
	shorts []int32 // lengths of the items that are not giants
	at     []int32 // of each of them: its item
	giants []giant // that are admitted
	begun  []int32 // giants whose rows have a unit that the giant fills in part
	row    []int32 // of each item
}

// giant is the row that begins with a giant.
type giant struct {
	item  int32
	free  int32 // units that it leaves empty
	rest  int32 // tokens in the unit that it fills in part, or 0
	whole int32 // units that it fills
}

// Pack is [Packer.Pack] for rows of several widths: it returns the row of
// each of the first n items, -1 for those left over, of which there are at most
// leave; items from n on go back to the stream.
//
// A giant gets a row of the smallest width that holds it, if [Admission] admits it,
// in the order of the items; no row has two. The other items fill what giants leave
// of their rows, and rows of width 1. The rows of giants have the first numbers, in
// the order of their giants. The width of a row follows from its tokens; widths add
// up to w.Units, counting empty
// rows, which are the last ones.
//
// The result belongs to the WidePacker and is valid until the next call.
func (p *WidePacker) Pack(lengths []int32, first int, w Wide, leave int) (row []int32, n int, err error) {
	if err := w.check(lengths, first); err != nil {
		return nil, 0, err
	}
	room := int64(w.Units) * int64(w.Capacity)
	n = longestPrefix(lengths, first, leave, room, func(next int) outcome {
		return p.pack(lengths[:next], first, w, leave)
	})
	p.number()
	return p.row, n, nil
}

// pack packs all items.
func (p *WidePacker) pack(lengths []int32, first int, w Wide, leave int) outcome {
	over, carried := p.divide(lengths, first, w)
	units := w.Units
	for _, g := range p.giants {
		units -= int(g.whole)
	}
	units = min(units, len(p.begun)+len(p.shorts))
	got := p.packer.packPrefix(p.shorts, carried, w.Capacity, units, max(leave-over.items, 0))
	return outcome{left: got.left + over.left, items: got.items + over.items}
}

// divide separates giants from the other items. It returns the giants that wait, and
// how many of the other items are first.
func (p *WidePacker) divide(lengths []int32, first int, w Wide) (over outcome, carried int) {
	p.shorts, p.at, p.giants, p.begun = p.shorts[:0], p.at[:0], p.giants[:0], p.begun[:0]
	p.packer.begun = p.packer.begun[:0]
	p.row = grow(p.row, len(lengths))
	admission := Admission{Wide: w}
	for i, n := range lengths {
		p.row[i] = Unplaced
		switch admitted := admission.Admit(n); {
		case n <= w.Capacity:
			if i < first {
				carried++
			}
			p.shorts, p.at = append(p.shorts, n), append(p.at, int32(i))
		case admitted:
			g := giant{item: int32(i), whole: n / w.Capacity, rest: n % w.Capacity}
			if g.rest > 0 {
				p.begun = append(p.begun, int32(len(p.giants)))
				p.packer.begun = append(p.packer.begun, g.rest)
			}
			g.free = w.Width(int64(n)) - g.whole - min(g.rest, 1)
			p.giants = append(p.giants, g)
		default:
			over.items++
			over.left += int64(n)
		}
	}
	return over, carried
}

// number turns the bins of the packer into rows: the bins that giants began belong
// to their rows, and the bins after them fill up these rows.
func (p *WidePacker) number() {
	p.packer.write()
	for r, g := range p.giants {
		p.row[g.item] = int32(r)
	}
	owner := p.begun // of each bin, as far as giants own one
	for r, g := range p.giants {
		for range g.free {
			owner = append(owner, int32(r))
		}
	}
	p.begun = owner
	for k, i := range p.at {
		switch b := int(p.packer.bin[k]); {
		case b == int(Unplaced):
		case b < len(owner):
			p.row[i] = owner[b]
		default:
			p.row[i] = int32(len(p.giants) + b - len(owner))
		}
	}
}
