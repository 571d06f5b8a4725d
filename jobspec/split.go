package jobspec

import (
	"fmt"
	"math/bits"
	"slices"
)

// Pool reports whether all dp * cp ranks are one pool, each with rows of its own: with
// batch.context_split, or if the strategy distributes rows at cp.
func (j *Job) Pool() bool {
	for graph, p := range j.Primitives() {
		if p.Distribute != nil && graph.isRows() {
			return p.Distribute.Axis == "cp"
		}
	}
	return j.Batch.ContextSplit > 0
}

// pool checks what rows that are distributed at cp need, said at a field.
func (c *checker) pool(at string) {
	c.poolMicrobatches()
	if format := c.job.Output.Format; c.sound("output.format") && format != thd {
		c.error("output.format", format+" cannot say that a microbatch is not cut over cp ranks, as `distribute: cp` has it", "valid is "+thd)
	}
	for i := range c.job.Sources {
		if c.job.Sources[i].Images() != nil {
			c.error(itemField("sources", i)+".transforms", "has an image step, and rows at cp are for tokens only", "remove one of the two")
		}
	}
}

// contextSplit checks what rows of several widths need.
func (c *checker) contextSplit() {
	const at = "batch.context_split"
	b, t, o := c.job.Batch, c.job.Topology, c.job.Output
	if b.ContextSplit == 0 || !c.sound(at) {
		return
	}
	n := b.ContextSplit
	if bits.OnesCount(uint(n)) != 1 {
		low := 1 << (bits.Len(uint(n)) - 1)
		c.error(at, fmt.Sprintf("%d is not a power of two", n), fmt.Sprintf("valid are %d and %d", low, 2*low))
		return
	}
	if c.sound("topology") && t.DP*t.CP%n != 0 {
		c.error(at, fmt.Sprintf("%d does not divide the pool of dp %d * cp %d ranks", n, t.DP, t.CP), "valid are the powers of two that do")
	} else {
		c.poolMicrobatches()
	}
	if c.sound("batch.sequence_length") && c.job.LongestSample() > maxRow {
		c.error(at, fmt.Sprintf("rows of %d * %d tokens are too long", n, b.SequenceLength), fmt.Sprintf("valid is at most %d tokens", maxRow))
	}
	if c.sound("output.format") && o.Format != thd {
		c.error("output.format", o.Format+" has no rows of several widths, which batch.context_split makes", "valid is "+thd)
	}
	if c.sound("output.cp_slicing") && o.CPSlicing != "zigzag" {
		c.error("output.cp_slicing", o.CPSlicing+" does not cut documents one by one, as batch.context_split needs it", "valid is zigzag")
	}
	if c.sound("batch.packing") && !b.Packing {
		c.error("batch.packing", "is off, and context_split fills wide rows with several samples", "valid is true")
	}
	if c.sound("batch.microbatch_size") && b.MicrobatchSize != 1 {
		c.error("batch.microbatch_size", fmt.Sprintf("%d rows of one microbatch may have several widths with context_split", b.MicrobatchSize), "valid is 1")
	}
	if c.sound("topology.order") && slices.Index(t.Order, "dp") < slices.Index(t.Order, "cp") {
		c.error("topology.order", "has dp before cp, and the ranks that share a row are neighbours in cp first", "write cp before dp")
	}
	for i := range c.job.Sources {
		if c.job.Sources[i].Images() != nil {
			c.error(itemField("sources", i)+".transforms", "has an image step, and context_split is for tokens only", "remove one of the two")
		}
	}
}

// poolMicrobatches checks that every rank of the pool gets equally many microbatches.
func (c *checker) poolMicrobatches() {
	b, t := c.job.Batch, c.job.Topology
	if !c.sound("batch.sequences", "batch.tokens", "topology") || b.Sequences == 0 {
		return
	}
	unit, words := int64(t.DP)*int64(t.CP)*int64(max(b.MicrobatchSize, 1)), ""
	if b.MicrobatchSize > 1 {
		words = fmt.Sprintf(" * microbatch_size %d", b.MicrobatchSize)
	}
	if t.VPP > 1 {
		unit *= int64(t.PP)
		words += fmt.Sprintf(" * pp %d, which the interleaved schedule of vpp %d needs", t.PP, t.VPP)
	}
	if n := int64(b.Sequences); n%unit != 0 {
		c.error("batch.sequences", fmt.Sprintf("%d is not a multiple of the pool of dp %d * cp %d ranks%s", n, t.DP, t.CP, words), near(n, unit))
	}
}
