package strategy

import (
	"slices"

	"github.com/millrace-data/millrace/planner/dgraph"
)

// Block names a block of a source.
type Block struct {
	Source int32
	Seq    int64
}

// Part is what a constructor does of a step: the rows of its buckets. They come in the
// order of delivery, by microbatch, then by DP rank and position; samples row by row, in
// the order of the row. Who encodes an image is in Result.Encoder.
type Part struct {
	Rows       []uint32 // numbers in the global batch
	Rank       []uint32 // DP rank of each row; with Width, the first of its ranks, of all DP x CP ranks
	Width      []uint32 // ranks that share each row, some of which may be of other buckets; nil if rows have one width
	Microbatch []uint32 // slot of each row
	Position   []uint32 // place of each row in its microbatch
	RowSamples []uint32 // samples of each row

	Blocks       []Block  // that samples come from, in the order of their use
	SampleBlock  []uint32 // of each sample: an index into Blocks
	SampleIndex  []uint32 // place in the block
	SampleLength []uint32 // tokens
}

// Part returns the part of the constructor that serves these DP ranks.
// Ranks that the mesh does not have get nothing. The result comes
// from a Runner; parts of one result may be cut at the same time.
func (r *Result) Part(buckets []uint32) Part {
	dp, size := r.ranks, r.MicrobatchSize
	mine := r.ranksOf(buckets)
	c := cutter{index: r.index, local: make([]uint32, len(r.index.blocks))}
	c.makeRoom(r, mine)
	for microbatch := range r.Microbatches {
		last := int32(-1)
		for _, rank := range mine {
			for position := range size {
				row := r.index.rowAt[(microbatch*dp+int(rank))*size+position]
				if r.Width != nil && row == last {
					continue // its ranks are neighbours
				}
				last = row
				c.row(row, uint32(r.Rank[row]), microbatch, position)
			}
		}
	}
	if r.Width != nil {
		for _, row := range c.part.Rows {
			c.part.Width = append(c.part.Width, uint32(r.Width[row]))
		}
	}
	return c.finish()
}

// ranksOf returns the ranks of buckets of DP ranks at the axis of rows, ascending.
func (r *Result) ranksOf(buckets []uint32) (mine []uint32) {
	each := uint32(1)
	if r.Width != nil {
		each = uint32(r.tree.Sizes().CP)
	}
	for _, b := range buckets {
		for k := range each {
			if rank := b*each + k; int(rank) < r.ranks {
				mine = append(mine, rank)
			}
		}
	}
	slices.Sort(mine)
	return slices.Compact(mine)
}

// index finds the rows of a rank, and what parts say of samples. Nobody changes it
// once it is made.
type index struct {
	rowAt          []int32 // (microbatch x dp + rank) x size + position -> row
	start, samples []int32 // samples by row

	blocks                []Block  // of all samples
	block, place, lengths []uint32 // of each of samples, in their order: in blocks, in the block, tokens
}

func newIndex(r *Result, buf *dgraph.Buffer) *index {
	x, dp := &index{rowAt: make([]int32, r.ranks*r.Microbatches*r.MicrobatchSize)}, r.ranks
	for row := range r.Rank {
		first, width := r.Span(row)
		for rank := first; rank < first+width; rank++ {
			x.rowAt[(int(r.Microbatch[row])*dp+rank)*r.MicrobatchSize+int(r.Position[row])] = int32(row)
		}
	}
	x.start, x.samples = dgraph.ByRow(r.RowOf, len(r.Rank))
	x.describe(r.RowOf, buf)
	return x
}

// describe writes what parts say of samples in the order of rows, so that parts are copied, and
// numbers the blocks of all samples. A source gives its samples block by block, so the block
// of the sample before is mostly the one.
func (x *index) describe(rowOf []int32, buf *dgraph.Buffer) {
	numbers := map[Block]int32{}
	var last []int32 // of each source, the block of its last sample
	n := len(x.samples)
	columns, next := make([]uint32, 3*n), slices.Clone(x.start)
	x.block, x.place, x.lengths = columns[:n:n], columns[n:2*n:2*n], columns[2*n:]
	for i, source := range buf.Source {
		for int(source) >= len(last) {
			last = append(last, -1)
		}
		b := Block{source, buf.Seq[i]}
		if at := last[source]; at < 0 || x.blocks[at] != b {
			number, ok := numbers[b]
			if !ok {
				number = int32(len(x.blocks))
				numbers[b], x.blocks = number, append(x.blocks, b)
			}
			last[source] = number
		}
		if row := rowOf[i]; row >= 0 {
			at := next[row]
			x.block[at], x.place[at], x.lengths[at] = uint32(last[source]), uint32(buf.Index[i]), uint32(buf.Tokens[i])
			next[row]++
		}
	}
}

// row returns the samples of a row.
func (x *index) row(row int32) []int32 { return x.samples[x.start[row]:x.start[row+1]] }

// cutter writes a part.
type cutter struct {
	*index
	part  Part
	used  []uint32 // blocks, in the order of the part
	local []uint32 // block -> its number in the part, plus 1
}

// makeRoom makes columns of the right size.
func (c *cutter) makeRoom(r *Result, mine []uint32) {
	dp, rows, samples := r.ranks, len(mine)*r.Microbatches*r.MicrobatchSize, 0
	for _, rank := range mine {
		for m := range r.Microbatches {
			at := (m*dp + int(rank)) * r.MicrobatchSize
			for _, row := range c.rowAt[at : at+r.MicrobatchSize] {
				samples += len(c.index.row(row))
			}
		}
	}
	all := make([]uint32, 5*rows+3*samples)
	cut := func(n int) []uint32 {
		column := all[:0:n]
		all = all[n:]
		return column
	}
	c.part = Part{
		Rows: cut(rows), Rank: cut(rows), Microbatch: cut(rows), Position: cut(rows), RowSamples: cut(rows),
		SampleBlock: cut(samples), SampleIndex: cut(samples), SampleLength: cut(samples),
	}
}

func (c *cutter) row(row int32, rank uint32, microbatch, position int) {
	p, from, to := &c.part, c.start[row], c.start[row+1]
	p.Rows, p.Rank = append(p.Rows, uint32(row)), append(p.Rank, rank)
	p.Microbatch, p.Position = append(p.Microbatch, uint32(microbatch)), append(p.Position, uint32(position))
	p.RowSamples = append(p.RowSamples, uint32(to-from))
	p.SampleIndex = append(p.SampleIndex, c.place[from:to]...)
	p.SampleLength = append(p.SampleLength, c.lengths[from:to]...)
	for _, b := range c.block[from:to] {
		if c.local[b] == 0 {
			c.used = append(c.used, b)
			c.local[b] = uint32(len(c.used))
		}
		p.SampleBlock = append(p.SampleBlock, c.local[b]-1)
	}
}

// finish adds the blocks.
func (c *cutter) finish() Part {
	c.part.Blocks = make([]Block, len(c.used))
	for k, b := range c.used {
		c.part.Blocks[k] = c.blocks[b]
	}
	return c.part
}
