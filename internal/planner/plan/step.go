package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/strategy"
)

// owedBits is the resolution of deficits inside a step; deficitBits that of the
// ones a state keeps. A state rounds once a step, by at most 2^-13 tokens, and
// takes three bytes less per source in every resume token for it.
const (
	owedBits    = mix.Bits
	deficitBits = 12
)

// The grains of a mix: how often the schedule's weights move.
const (
	grainEpoch   = "epoch"
	grainSubstep = "substep"
	substeps     = 16 // in a step
)

// draft is a step in the making. Draws can be taken back in reverse order.
type draft struct {
	c       *Core
	shape   Shape
	part    int      // which substep the shares are of
	byHand  []uint64 // shares that the strategy gave
	shares  []uint64 // of this step, before exhausted sources are taken out
	debts   debts
	cursors []Cursor
	lanes   []lane
	pool    *dgraph.Buffer // released samples, carried ones, then draws
	outliers
	jumps  []jump
	mixes  []mixed
	banned []Ref
	drawn  int64 // units, in all
	tokens int64
	rowOf  []int32          // of each sample of the pool, once it is packed
	placed *strategy.Result // of a step that was prepared to its end
	// Where rows have several widths: which samples are in the step so far, and how
	// many have to wait for the next; their tokens do not count. nil if all have one width.
	admitted *balance.Admission
	waiting  int
	stopped  bool // a source ended, and with it the job
	blocked  bool // a block is not known yet
}

// lane is the block that a source is drawn from at the moment, if nothing has to be
// looked at but its lengths: the source has no limit, the block no banned sample.
type lane struct {
	seq     int64
	lengths []int32
}

// jump remembers a draw that was not of the sample that follows in a lane.
type jump struct {
	at     int // number of the draw in the step
	before Cursor
	banned int // how many samples were left out before
}

// mixed remembers since which draw the shares are what they are.
type mixed struct {
	at     int // number of that draw in the step
	shares []uint64
	part   int   // substep whose weights they are
	ended  int32 // source that was found to have ended, which is why they are others; -1 if that is not why
	drawn  int64 // units drawn in the step before it
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
	c.pending = nil
	if d == nil {
		return nil, false
	}
	result, err := d.placed, error(nil)
	if result == nil {
		result, err = c.run(d)
	}
	switch {
	case c.failed != nil:
		return nil, false
	case errors.Is(err, strategy.ErrBlocked):
		c.pending = d
		return nil, false
	case errors.Is(err, errEnd):
		c.last = d
		return nil, true
	case err != nil:
		c.fail(fault.As(fault.ClassOf(err), fmt.Errorf("planning step %d: %w", c.state.Step, err)))
		return nil, false
	}
	return d.close(result), false
}

// run has the strategy plan a draft.
func (c *Core) run(d *draft) (*strategy.Result, error) {
	return c.runner.Run(c.cfg.Strategy, strategy.Input{
		Number: c.state.Step, Tree: c.cfg.mesh(c.state.Settings), Draw: d.drawAll, Shape: c.strategyShape(d.shape), Sources: c.names(), Both: c.cfg.Both,
	})
}

var errEnd = errors.New("there is no such step")

// newDraft begins a step with the samples that it was to have before any is drawn;
// nil if they are not known well enough.
func (c *Core) newDraft() *draft {
	n := len(c.state.Cursors)
	d := &draft{c: c, shape: c.shape(c.state.Settings), cursors: slices.Clone(c.state.Cursors), lanes: make([]lane, n), jumps: c.scratch.jumps[:0]}
	d.pool = newPool(c.scratch.samples)
	d.outliers = c.outliers(d.shape)
	if c.cfg.Widest > 1 {
		d.admitted = &balance.Admission{Wide: balance.Wide{Capacity: d.shape.SequenceLength, Widest: c.cfg.Widest, Units: d.shape.Rows}}
	}
	d.debts = debts{base: make([]int64, n), out: c.state.Settings.out(n)}
	for i, cur := range d.cursors {
		d.debts.base[i] = cur.Deficit << (owedBits - deficitBits)
	}
	if !d.takeCarried() {
		return nil
	}
	d.setShares(0)
	return d
}

// takeCarried begins the pool: with the samples that waited for others and are
// released, then the carried ones. It reports false if too little is known of one.
func (d *draft) takeCarried() bool {
	var held []Held
	known := true
	for _, h := range d.c.state.Held {
		usable, ok := d.usable(h.Ref)
		if usable {
			held = append(held, h)
		}
		known = known && ok
	}
	d.release(held)
	for _, r := range d.c.state.Carry {
		usable, ok := d.usable(r)
		if usable {
			d.add(r)
		}
		known = known && ok
	}
	d.pool.Carried = d.pool.Len()
	return known
}

// usable says whether a sample that was drawn before is not banned now. Its block has
// to be known, though a position tells where the sample is and how long: whether it is
// banned, its images, and that the data is still what it was drawn from.
func (d *draft) usable(r Ref) (usable, known bool) {
	b, ok := d.c.sources[r.Source].blocks[r.Seq]
	switch {
	case !ok:
		d.c.want(r.Source, r.Seq)
		return false, false
	case int(r.Index) >= len(b.lengths) || b.lengths[r.Index] != r.Length:
		d.c.fail(d.c.errDrawn(r, b.lengths))
		return false, false
	case d.isBanned(&b, r.Index):
		d.banned = append(d.banned, r)
		return false, true
	}
	return true, true
}

// isBanned says whether a sample is under a ban that is in force.
func (d *draft) isBanned(b *block, index int32) bool {
	for _, x := range b.banned {
		if x.Index == index && d.c.inForce(x.Ban) {
			return true
		}
	}
	return false
}

// inForce says whether the ban of a number is one of the step that is planned.
func (c *Core) inForce(ban uint32) bool {
	return slices.ContainsFunc(c.state.Settings.Bans, func(b Ban) bool { return b.ID == ban })
}

// setShares mixes by the weights of a substep from here on.
func (d *draft) setShares(part int) {
	d.part, d.shares = part, d.byHand
	if d.shares == nil {
		d.shares = d.c.cfg.shares(d.c.state.Settings, d.c.state, part, d.c.cfg.substeps())
	}
	d.renormalize(-1)
}

// renormalize gives the shares of the sources that are out to the others. ended is
// the one that ended just now, -1 if none did.
func (d *draft) renormalize(ended int32) {
	live := live(d.shares, d.debts.out)
	d.debts.mixBy(live)
	d.mixes = append(d.mixes, mixed{d.draws(), live, d.part, ended, d.drawn})
}

// fill draws until the rows' tokens are covered, and a row or two more, so that
// packing has something to choose from; or the part of them that the job says; or a
// sample for each row. It stops early where many samples wait for rows that are as wide
// as they need.
func (d *draft) fill() {
	rows := int64(d.shape.Rows)
	want := (rows + min(max(rows/8, 1), 2)) * int64(d.shape.SequenceLength)
	if part := int64(d.c.cfg.Fill); part > 0 && part < 1000 {
		want = max(rows*int64(d.shape.SequenceLength)*part/1000, 1)
	}
	for {
		done, all := d.tokens, want
		if !d.c.cfg.Packing {
			done, all = int64(d.pool.Len()), rows
		}
		if done >= all || d.waiting > waitLimit {
			return
		}
		if d.c.cfg.Grain == grainSubstep {
			if part := int(done * substeps / all); part > d.part {
				d.setShares(part)
			}
		}
		if !d.draw() && !d.flush() {
			return
		}
	}
}

// draw takes the next sample from the source furthest behind its share, the
// first of equals, or by chance. It reports false if there is none: blocked or
// stopped.
func (d *draft) draw() bool {
	for !d.stopped {
		src := d.pick()
		if src < 0 {
			d.stopped = true
			return false
		}
		cur, lane := &d.cursors[src], &d.lanes[src]
		if cur.Seq == lane.seq && int(cur.Index) < len(lane.lengths) {
			d.take(src, lane.lengths[cur.Index])
			return true
		}
		before, banned := *cur, len(d.banned)
		switch d.seek(src) {
		case found:
			d.jumps = append(d.jumps, jump{d.draws(), before, banned})
			d.takeFirst(src)
			return true
		case unknown: // to be sought again, over the same blocks
			*cur, d.banned = before, d.banned[:banned]
			d.blocked = true
			return false
		case spent:
			*cur, d.banned = before, d.banned[:banned]
			d.exhaust(src)
		}
	}
	return false
}

func (d *draft) pick() int32 {
	if d.c.cfg.Random {
		return mix.Pick(d.debts.shares, d.c.cfg.Seed, d.c.state.Step+d.c.step.skip<<32, d.draws())
	}
	return d.debts.behind()
}

type sought int

const (
	found sought = iota
	unknown
	spent
)

// seek moves a source's cursor to its next sample, over banned ones and the ends
// of blocks and epochs.
func (d *draft) seek(i int32) sought {
	cur, src := &d.cursors[i], &d.c.sources[i]
	for passed, barren := int64(0), 0; ; {
		if src.Limit > 0 && cur.InEpoch >= src.Limit {
			cur.Seq, cur.Index, cur.InEpoch = (cur.Seq/src.Blocks+1)*src.Blocks, 0, 0
			if barren++; barren > barrenEpochs {
				d.c.fail(d.c.errBarren(i, cur.Seq))
				return unknown
			}
		}
		if d.c.cfg.Epochs > 0 && cur.Seq >= d.c.cfg.Epochs*src.Blocks {
			if cur.Tokens == 0 {
				d.c.fail(d.c.errBarren(i, cur.Seq))
				return unknown
			}
			return spent
		}
		b, ok := src.blocks[cur.Seq]
		if !ok {
			if err := src.unread[cur.Seq]; err != nil {
				d.c.fail(err)
			}
			d.c.want(i, cur.Seq)
			return unknown
		}
		if int(cur.Index) < len(b.lengths) {
			if len(b.banned) == 0 || !d.isBanned(&b, cur.Index) {
				return found
			}
			d.banned = append(d.banned, Ref{i, cur.Seq, cur.Index, b.lengths[cur.Index]})
			cur.Index++
			if src.Limit > 0 {
				cur.InEpoch++
			}
			continue
		}
		if passed > 2*src.Blocks { // one sample an epoch may be first in one and last in the next
			d.c.fail(d.c.errBarren(i, cur.Seq))
			return unknown
		}
		cur.Seq, cur.Index = cur.Seq+1, 0
		if cur.Seq%src.Blocks == 0 {
			cur.InEpoch = 0
		}
		passed++
	}
}

// take draws the sample under the cursor of source i, which has that number of tokens.
func (d *draft) take(i, length int32) {
	cur := &d.cursors[i]
	if r := (Ref{i, cur.Seq, cur.Index, length}); length < d.outlying || !d.hold(r) {
		d.add(r)
	}
	cur.Index++
	cur.Samples++
	cur.Tokens += int64(length)
	units := d.units(length)
	d.drawn += units
	d.debts.draw(i, units)
}

// takeFirst draws the sample that source i was moved to. Those after it need not
// be sought if the block is a lane.
func (d *draft) takeFirst(i int32) {
	cur, src := &d.cursors[i], &d.c.sources[i]
	b := src.blocks[cur.Seq]
	if src.Limit == 0 && len(b.banned) == 0 {
		d.lanes[i] = lane{cur.Seq, b.lengths}
	}
	d.take(i, b.lengths[cur.Index])
	if src.Limit > 0 {
		cur.InEpoch++
	}
}

// add puts a sample into the pool.
func (d *draft) add(r Ref) {
	b := d.pool
	b.Source, b.Seq = append(b.Source, r.Source), append(b.Seq, r.Seq)
	b.Index, b.Tokens = append(b.Index, r.Index), append(b.Tokens, r.Length)
	room := d.c.room(r.Length)
	if d.admitted != nil && !d.admitted.Admit(room) {
		d.waiting++
		return
	}
	d.tokens += int64(room)
}

// cut takes the last sample out of the pool.
func (d *draft) cut() Ref {
	b, at := d.pool, d.pool.Len()-1
	r := Ref{b.Source[at], b.Seq[at], b.Index[at], b.Tokens[at]}
	b.Source, b.Seq, b.Index, b.Tokens = b.Source[:at], b.Seq[:at], b.Index[:at], b.Tokens[:at]
	d.tokens -= int64(d.c.room(r.Length))
	return r
}

func (d *draft) units(length int32) int64 {
	if d.c.cfg.CountSamples {
		return 1
	}
	return int64(length)
}

// exhaust takes a source out for the rest of the step, or stops the job.
func (d *draft) exhaust(i int32) {
	d.debts.out[i] = true
	if d.c.cfg.Renormalize {
		d.renormalize(i)
		return
	}
	d.stopped = true
}

// withheld are the sources that would go on if they were not paused or dropped, where
// no other does.
func (d *draft) withheld() (sources []int32) {
	out := d.c.state.Settings.out(len(d.shares))
	for i, share := range d.shares {
		if d.debts.out[i] && !out[i] && !d.c.cfg.Renormalize {
			return nil // it is exhausted, which ends the job
		}
		if out[i] && share > 0 {
			sources = append(sources, int32(i))
		}
	}
	return sources
}

// Spent are the sources that were found to have ended in the step that does not exist, rising: with
// `exhausted: stop` the one that ended the data. It is nil before the end, and where no source
// that is not paused or dropped is left.
func (c *Core) Spent() (sources []int32) {
	if c.ended < 0 || c.last == nil {
		return nil
	}
	out := c.state.Settings.out(len(c.last.debts.out))
	for i, gone := range c.last.debts.out {
		if gone && !out[i] {
			sources = append(sources, int32(i))
		}
	}
	return sources
}

// giveBack takes the last n samples out of the pool, and with them all draws from
// the first of them on.
func (d *draft) giveBack(n int) {
	for keep := d.pool.Len() - n; d.pool.Len() > keep; {
		if d.flushed > 0 {
			d.cut()
			d.flushed--
			continue
		}
		d.undo()
	}
}

// undo takes the last draw back.
func (d *draft) undo() {
	at := d.draws() - 1
	if m := len(d.mixes) - 1; d.mixes[m].at > at {
		for ; d.mixes[m].at > at; m-- {
		}
		d.mixes = d.mixes[:m+1]
		d.debts.mixBy(d.mixes[m].shares)
	}
	r, ok := d.unhold()
	if !ok {
		r = d.cut()
	}
	d.drawn -= d.units(r.Length)
	d.debts.undo(r.Source, d.units(r.Length))
	if j := len(d.jumps) - 1; j >= 0 && d.jumps[j].at == at {
		d.cursors[r.Source], d.banned = d.jumps[j].before, d.banned[:d.jumps[j].banned]
		d.jumps = d.jumps[:j]
		return
	}
	cur := &d.cursors[r.Source]
	cur.Index--
	cur.Samples--
	cur.Tokens -= int64(r.Length)
}

// deficit is what a source is owed, as a state keeps it.
func (d *draft) deficit(i int32) int64 {
	if d.c.cfg.Random {
		return 0
	}
	return rounded(d.debts.owed(i))
}
