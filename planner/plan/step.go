package plan

import (
	"cmp"
	"slices"

	"github.com/millrace-data/millrace/planner/mix"
)

// owedBits is the resolution of deficits inside a step; deficitBits that of the
// ones a state keeps. A state rounds once a step, by at most 2^-13 tokens, and
// takes three bytes less per source in every resume token for it.
const (
	owedBits    = mix.Bits
	deficitBits = 12
)

// draft is a step in the making. Draws can be taken back in reverse order.
type draft struct {
	c         *Core
	shares    []uint64 // of this step, before exhausted sources are taken out
	live      []uint64 // of the sources that are left
	cursors   []Cursor
	owed      []int64 // behind the schedule, in 2^-32 units
	exhausted []bool
	pool      []Ref // carried samples, then draws
	carried   int
	draws     []draw
	tokens    int64
	stopped   bool // a source ended, and with it the job
	blocked   bool // a block is not known yet
}

// draw remembers what one draw changed.
type draw struct {
	before Cursor
	shares []uint64
}

// next plans the step after the current state. It returns nil if a block is
// missing (it was asked for), or end if there is no such step. What was drawn
// before a block was missing is kept: drawing goes on there when the block is
// known, since nothing that was drawn before it depends on it.
func (c *Core) next() (step *Step, end bool) {
	d := c.pending
	if d == nil {
		d = c.newDraft()
	}
	c.pending, d.blocked = nil, false
	if c.cfg.Packing {
		d.fill()
	} else {
		for len(d.pool) < c.cfg.Rows && d.draw() {
		}
	}
	switch {
	case d.blocked:
		c.pending = d
		return nil, false
	case c.failed != nil:
		return nil, false
	case len(d.pool) == 0:
		return nil, true
	}
	return d.place(), false
}

func (c *Core) newDraft() *draft {
	d := &draft{
		c:         c,
		shares:    c.cfg.Schedule.Shares(c.state.Step),
		cursors:   append([]Cursor(nil), c.state.Cursors...),
		owed:      make([]int64, len(c.state.Cursors)),
		exhausted: make([]bool, len(c.state.Cursors)),
		pool:      append([]Ref(nil), c.state.Carry...),
		carried:   len(c.state.Carry),
	}
	d.live = d.shares
	for i, cur := range d.cursors {
		d.owed[i] = cur.Deficit << (owedBits - deficitBits)
	}
	for _, r := range d.pool {
		d.tokens += int64(r.Length)
	}
	return d
}

// fill draws until the rows' tokens are covered, and a row or two more, so that
// packing has something to choose from.
func (d *draft) fill() {
	rows := int64(d.c.cfg.Rows)
	want := (rows + min(max(rows/8, 1), 2)) * int64(d.c.cfg.SequenceLength)
	for d.tokens < want {
		if !d.draw() {
			return
		}
	}
}

// draw takes the next sample from the source furthest behind its share, the
// first of equals. It reports false if there is none: blocked or stopped.
func (d *draft) draw() bool {
	for !d.stopped {
		src := d.behind()
		if src < 0 {
			d.stopped = true
			return false
		}
		before := d.cursors[src]
		switch d.seek(src) {
		case found:
			d.take(int32(src), before)
			return true
		case unknown:
			d.cursors[src] = before // to be sought again, over the same blocks
			d.blocked = true
			return false
		case spent:
			d.exhaust(src)
		}
	}
	return false
}

// behind returns the source that is owed most, among those that have a share or
// are owed something; -1 if no source is left.
func (d *draft) behind() int {
	best := -1
	for i, owed := range d.owed {
		if d.exhausted[i] || (d.live[i] == 0 && owed <= 0) {
			continue
		}
		if best < 0 || owed > d.owed[best] {
			best = i
		}
	}
	return best
}

type sought int

const (
	found sought = iota
	unknown
	spent
)

// seek moves a source's cursor to its next sample, over the ends of blocks and
// epochs.
func (d *draft) seek(i int) sought {
	cur, src := &d.cursors[i], d.c.cfg.Sources[i]
	for passed := int64(0); ; passed++ {
		if src.Limit > 0 && cur.InEpoch >= src.Limit {
			cur.Seq, cur.Index, cur.InEpoch = (cur.Seq/src.Blocks+1)*src.Blocks, 0, 0
		}
		if d.c.cfg.Epochs > 0 && cur.Seq >= d.c.cfg.Epochs*src.Blocks {
			if cur.Tokens == 0 {
				d.c.fail(d.c.errBarren(int32(i)))
				return unknown
			}
			return spent
		}
		lengths, ok := d.c.sources[i].blocks[cur.Seq]
		if !ok {
			d.c.want(int32(i), cur.Seq)
			return unknown
		}
		if int(cur.Index) < len(lengths) {
			return found
		}
		if passed > 2*src.Blocks { // one sample an epoch may be first in one and last in the next
			d.c.fail(d.c.errBarren(int32(i)))
			return unknown
		}
		cur.Seq, cur.Index = cur.Seq+1, 0
		if cur.Seq%src.Blocks == 0 {
			cur.InEpoch = 0
		}
	}
}

// take draws the sample under the cursor of source i.
func (d *draft) take(i int32, before Cursor) {
	cur := &d.cursors[i]
	ref := Ref{i, cur.Seq, cur.Index, d.c.sources[i].blocks[cur.Seq][cur.Index]}
	cur.Index++
	cur.Samples++
	cur.Tokens += int64(ref.Length)
	if d.c.cfg.Sources[i].Limit > 0 {
		cur.InEpoch++
	}
	d.pool = append(d.pool, ref)
	d.draws = append(d.draws, draw{before, d.live})
	d.tokens += int64(ref.Length)
	d.account(ref, d.live, 1)
}

// account moves every source's debt by one sample, forth (sign 1) or back (-1).
func (d *draft) account(ref Ref, shares []uint64, sign int64) {
	units := d.units(ref)
	for k, share := range shares {
		d.owed[k] += sign * units * int64(share)
	}
	d.owed[ref.Source] -= sign * units << owedBits
}

func (d *draft) units(ref Ref) int64 {
	if d.c.cfg.CountSamples {
		return 1
	}
	return int64(ref.Length)
}

// exhaust takes a source out for the rest of the step, or stops the job.
func (d *draft) exhaust(i int) {
	d.exhausted[i] = true
	if d.c.cfg.Renormalize {
		if d.live = mix.Without(d.shares, d.exhausted); d.live == nil {
			d.live = make([]uint64, len(d.shares))
		}
		return
	}
	d.stopped = true
}

// giveBack takes the last n draws back.
func (d *draft) giveBack(n int) {
	for range n {
		last, ref := d.draws[len(d.draws)-1], d.pool[len(d.pool)-1]
		d.account(ref, last.shares, -1)
		d.cursors[ref.Source] = last.before
		d.tokens -= int64(ref.Length)
		d.draws, d.pool = d.draws[:len(d.draws)-1], d.pool[:len(d.pool)-1]
	}
}

// place puts the pool into rows and closes the step.
func (d *draft) place() *Step {
	bins := d.pack()
	if d.c.failed != nil {
		return nil
	}
	rows := d.c.cfg.Rows
	s := &Step{
		Step:  d.c.state.Step,
		Rows:  make([]int32, rows),
		Drawn: make([]int64, len(d.cursors)),
	}
	at := make([]int32, rows+1)
	for _, b := range bins {
		if b >= 0 {
			at[b+1]++
		}
	}
	copy(s.Rows, at[1:])
	for r := range rows {
		at[r+1] += at[r]
	}
	s.Samples = make([]Ref, at[rows])
	var carry []Ref
	for k, b := range bins {
		ref := d.pool[k]
		if b < 0 {
			carry = append(carry, ref)
			continue
		}
		s.Samples[at[b]] = ref
		at[b]++
		s.Filled += int64(ref.Length)
	}
	for i := range d.cursors {
		s.Drawn[i] = d.cursors[i].Tokens - d.c.state.Cursors[i].Tokens
		d.cursors[i].Deficit = (d.owed[i] + 1<<(owedBits-deficitBits-1)) >> (owedBits - deficitBits)
	}
	// The carried samples are the first to be placed in the next step, the
	// longest of them before the others: a row that one of them opens can still
	// be filled, and none is carried for long.
	slices.SortStableFunc(carry, func(a, b Ref) int { return cmp.Compare(b.Length, a.Length) })
	s.After = State{Step: s.Step + 1, Cursors: d.cursors, Carry: carry}
	return s
}

// pack returns the row of each sample of the pool, -1 for those left over, and
// gives back the draws that would be too many to leave over.
func (d *draft) pack() []int32 {
	if !d.c.cfg.Packing {
		bins := make([]int32, len(d.pool))
		for i := range bins {
			bins[i] = int32(i)
		}
		return bins
	}
	lengths := make([]int32, len(d.pool))
	for i, r := range d.pool {
		lengths[i] = r.Length
	}
	bins, kept, err := d.c.packer.PackLimited(lengths, d.carried, d.c.cfg.SequenceLength, d.c.cfg.Rows, carryLimit)
	if err != nil {
		d.c.fail(err)
		return nil
	}
	d.giveBack(len(d.pool) - kept)
	return bins
}
