package balance

import (
	"fmt"
	"slices"
)

// Unplaced is the bin of an item that is in no bin.
const Unplaced int32 = -1

// MaxCapacity bounds the capacity of a bin in tokens: scratch memory grows with
// it (about 12 bytes a token), and 16 M tokens are past the longest context trained on.
const MaxCapacity int32 = 1 << 24

// ItemError reports an item that no bin of the capacity can hold.
type ItemError struct {
	Index    int   // of the item in lengths
	Length   int32 // tokens
	Capacity int32 // tokens
}

func (e *ItemError) Error() string {
	return fmt.Sprintf("item %d has length %d; a length from 1 to the capacity %d is needed: split or drop the sample first",
		e.Index, e.Length, e.Capacity)
}

// Packer packs items into bins of equal capacity. It holds the scratch memory
// of one call, reused by the next. The zero value is ready. A Packer is not safe
// for concurrent use.
type Packer struct {
	open   openBins
	fill   completion
	sorted byLength
	begun  []int32 // tokens that the first bins hold before any item: of WidePacker
	room   []int32 // per bin that items placed first opened
	bin    []int32 // the best packing so far
	trial  []int32 // the packing of the rule that is tried

	unwritten bool // bin has not yet what fill found
}

// rule is one way to pack.
type rule int

const (
	arrival    rule = iota // complete bins that begin with the next items by index
	decreasing             // complete bins that begin with the longest item
	bestFit                // best fit decreasing
)

// outcome measures a packing.
type outcome struct {
	left  int64 // tokens in no bin
	used  int   // bins
	items int   // in no bin
}

// need returns a number of bins that no packing of the items, of the given tokens in all, can go below.
func (p *Packer) need(tokens int64, capacity int32) int {
	return int((max(tokens+sum(p.begun), p.sorted.space(capacity)) + int64(capacity) - 1) / int64(capacity))
}

// goal is an outcome within 1/2048 of a bound: not worth another rule.
func (p *Packer) goal(tokens int64, capacity int32, bins int) outcome {
	room := int64(bins)*int64(capacity) - sum(p.begun)
	need := p.need(tokens, capacity)
	return outcome{left: max(0, tokens-room+room/2048), used: min(need+need/2048, bins)}
}

func (o outcome) reaches(goal outcome) bool {
	return o.left <= goal.left && o.used <= goal.used
}

func (o outcome) better(than outcome) bool {
	return o.left < than.left || o.left == than.left && o.used < than.used
}

// try packs by another rule, and keeps the result if it is better than the best
// and leaves at most `leave` items out.
func (p *Packer) try(r rule, best outcome, leave int, lengths []int32, first int, capacity int32, bins int) outcome {
	p.bin, p.trial = p.trial, p.bin
	got := p.pack(r, lengths, first, capacity, bins)
	if got.better(best) && got.items <= leave {
		p.write()
		return got
	}
	p.bin, p.trial, p.unwritten = p.trial, p.bin, false
	return best
}

// pack packs by one rule. The result is in p.bin after write.
func (p *Packer) pack(r rule, lengths []int32, first int, capacity int32, bins int) (got outcome) {
	p.bin = grow(p.bin, len(lengths))
	p.open.reset(capacity, bins)
	for _, n := range p.begun {
		p.open.begin(n)
	}
	for i, n := range lengths[:first] {
		p.bin[i] = p.open.place(n)
	}
	p.unwritten = r != bestFit
	known := len(lengths) // items whose bins are known
	if p.unwritten {
		used := p.complete(r, lengths, first, capacity, bins)
		got, known = p.fill.over(), first
		got.used = used
	} else {
		p.fit(capacity)
		got.used = int(p.open.used)
	}
	for i, b := range p.bin[:known] {
		if b == Unplaced {
			got.left += int64(lengths[i])
			got.items++
		}
	}
	return got
}

// write has p.bin hold the result of the last pack.
func (p *Packer) write() {
	if p.unwritten {
		p.fill.write()
		p.unwritten = false
	}
}

// fit places the items by best fit, the longest first.
func (p *Packer) fit(capacity int32) {
	s := &p.sorted
	for n := s.lengths.prev(capacity); n > 0; n = s.lengths.prev(n - 1) {
		p.room = grow(p.room, int(s.count[n])) // the bins of items of a length, by index
		for k := range p.room {
			p.room[k] = p.open.place(n)
		}
		i := s.last[n]
		for k := len(p.room) - 1; k >= 0; k-- {
			p.bin[i] = p.room[k]
			i = s.prev[i]
		}
	}
}

// complete completes bin after bin, those that the first items opened before
// new ones, and returns the number of bins used.
func (p *Packer) complete(r rule, lengths []int32, first int, capacity int32, bins int) int {
	p.begin(lengths, first, capacity)
	c := &p.fill
	c.reset(&p.sorted, p.bin, capacity)
	b := int32(0)
	for ; int(b) < bins && (c.max > 0 || int(b) < len(p.room)); b++ {
		room, opened := capacity, int(b) < len(p.room)
		if opened {
			room = p.room[b]
		}
		c.begins = append(c.begins, c.next)
		if r == decreasing && !opened {
			room -= c.max
			c.take(c.max, b)
		}
		if r == arrival {
			room = c.begin(room)
		}
		c.complete(room, b)
	}
	return int(b)
}

// begin measures the room of the bins that the first items opened.
func (p *Packer) begin(lengths []int32, first int, capacity int32) {
	p.room = grow(p.room, int(p.open.used))
	for b := range p.room {
		p.room[b] = capacity
	}
	for b, n := range p.begun {
		p.room[b] -= n
	}
	for i, b := range p.bin[:first] {
		if b != Unplaced {
			p.room[b] -= lengths[i]
		}
	}
}

func check(lengths []int32, first int, capacity int32) error {
	if capacity < 1 || capacity > MaxCapacity {
		return fmt.Errorf("bin capacity %d is not in 1 to %d tokens", capacity, MaxCapacity)
	}
	if first < 0 || first > len(lengths) {
		return fmt.Errorf("%d items to place first, of %d items", first, len(lengths))
	}
	for i, n := range lengths {
		if n < 1 || n > capacity {
			return &ItemError{Index: i, Length: n, Capacity: capacity}
		}
	}
	return nil
}

// grow returns s with length n, of undefined content, reallocated only if it must be.
func grow[T any](s []T, n int) []T {
	return slices.Grow(s[:0], n)[:n]
}
