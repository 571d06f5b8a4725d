package plan

import (
	"cmp"
	"math"
	"slices"

	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/strategy"
)

// strategyShape is the shape of a global batch as a strategy sees it.
func (c *Core) strategyShape(s Shape) strategy.Shape {
	return strategy.Shape{
		Rows: s.Rows, SequenceLength: s.SequenceLength, MicrobatchSize: c.cfg.MicrobatchSize, Packing: c.cfg.Packing,
		Multiple: c.cfg.Multiple, Pool: c.cfg.Pool, Widest: c.cfg.Widest, Fill: c.cfg.Fill,
	}
}

// newPool returns an empty pool with room for n samples. It goes to the
// strategy, and on with the plan: nothing of it is used again.
func newPool(n int) *dgraph.Buffer {
	return &dgraph.Buffer{Source: make([]int32, 0, n), Seq: make([]int64, 0, n), Index: make([]int32, 0, n), Tokens: make([]int32, 0, n)}
}

// addImages gives the pool the images of its samples, if those of the job have any.
func (d *draft) addImages() {
	b := d.pool
	if !d.c.cfg.Images {
		return
	}
	b.ImageOffsets = append(make([]int32, 0, b.Len()+1), 0)
	for i, source := range b.Source {
		if images := d.c.sources[source].blocks[b.Seq[i]].images; images != nil {
			b.Patches = append(b.Patches, images.Patches[images.Offsets[b.Index[i]]:images.Offsets[b.Index[i]+1]]...)
		}
		b.ImageOffsets = append(b.ImageOffsets, int32(len(b.Patches)))
	}
}

// close puts the pool into the rows of a strategy's plan, and ends the step.
func (d *draft) close(placed *strategy.Result) *Step {
	s := &Step{
		Step:   d.c.state.Step,
		Shape:  d.shape,
		Mesh:   d.c.cfg.mesh(d.c.state.Settings),
		Rows:   make([]int32, len(placed.Rank)),
		Drawn:  make([]int64, len(d.cursors)),
		Draws:  make([]int64, len(d.cursors)),
		Placed: placed,
		Buffer: d.pool,
		Waited: d.waited,
		Banned: d.banned,
		Parts:  d.parts(),
		Given:  d.byHand != nil,
	}
	for row := range s.Rows {
		s.Rows[row] = int32(len(placed.Samples(row)))
	}
	var carry []Ref
	for k, row := range placed.RowOf {
		if length := d.pool.Tokens[k]; row < 0 {
			carry = append(carry, Ref{d.pool.Source[k], d.pool.Seq[k], d.pool.Index[k], length})
		} else {
			s.Filled += int64(length)
		}
	}
	for i := range d.cursors {
		s.Drawn[i] = d.cursors[i].Tokens - d.c.state.Cursors[i].Tokens
		s.Draws[i] = d.cursors[i].Samples - d.c.state.Cursors[i].Samples
		d.cursors[i].Deficit = d.deficit(int32(i))
	}
	// The carried samples are the first to be placed in the next step, the
	// longest of them before the others: a row that one of them opens can still
	// be filled, and none is carried for long. Samples that need a wide row come before
	// them, as they were drawn, so that none of these waits for ever.
	slices.SortStableFunc(carry, func(a, b Ref) int { return cmp.Compare(d.urgency(b), d.urgency(a)) })
	d.c.scratch.samples, d.c.scratch.jumps = d.pool.Len()+d.pool.Len()/32, d.jumps
	s.After = State{Step: s.Step + 1, Cursors: d.cursors, Carry: carry, Held: d.stillHeld(), Settings: d.c.state.Settings, Pending: d.c.state.Pending}
	return s
}

// urgency orders carried samples, the greater first.
func (d *draft) urgency(r Ref) int32 {
	if room := d.c.room(r.Length); d.admitted != nil && room > d.shape.SequenceLength {
		return math.MaxInt32
	}
	return r.Length
}

// pack returns the row of each sample of the pool, -1 for those left over, and
// gives back the draws that would be too many to leave over. The caller must not
// keep it.
func (d *draft) pack() []int32 {
	n := d.pool.Len()
	if !d.c.cfg.Packing {
		bins := make([]int32, n)
		for i := range bins {
			bins[i] = int32(i)
		}
		return bins
	}
	lengths := d.pool.Tokens
	if d.c.cfg.Multiple > 1 {
		lengths = make([]int32, n)
		for i, tokens := range d.pool.Tokens {
			lengths[i] = d.c.room(tokens)
		}
	}
	bins, kept, err := d.packRows(lengths)
	if err != nil {
		d.c.fail(err)
		return nil
	}
	d.giveBack(n - kept)
	return bins
}

func (d *draft) packRows(lengths []int32) (bins []int32, kept int, err error) {
	if d.admitted != nil {
		return d.c.wide.Pack(lengths, d.pool.Carried, d.admitted.Wide, carryLimit)
	}
	return d.c.packer.Pack(lengths, d.pool.Carried, d.shape.SequenceLength, d.shape.Rows, carryLimit)
}

// Samples returns the samples row by row, in a slice of the caller's.
func (s *Step) Samples() []Ref {
	refs := make([]Ref, 0, s.Count())
	for row := range s.Rows {
		for _, i := range s.Placed.Samples(row) {
			refs = append(refs, Ref{s.Buffer.Source[i], s.Buffer.Seq[i], s.Buffer.Index[i], s.Buffer.Tokens[i]})
		}
	}
	return refs
}

// Count returns the number of samples.
func (s *Step) Count() int { return s.Buffer.Len() - len(s.After.Carry) }
