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

// Sample is a sample of a row, as parts say it.
type Sample struct {
	Block  uint32 // that it comes from: an index into Result.Blocks
	Index  uint32 // place in the block
	Tokens uint32
}

// index finds the rows of a rank, and what parts say of samples. Nobody changes it
// once it is made.
type index struct {
	rowAt          []int32  // (microbatch x dp + rank) x size + position -> row
	start, samples []int32  // samples by row, as places in the buffer
	said           []Sample // of each of samples, in their order
	blocks         []Block  // of all samples
}

// newIndex makes the index of a result. count is the number of samples of each row.
func newIndex(r *Result, buf *dgraph.Buffer, count []int32) *index {
	x, dp := &index{rowAt: make([]int32, r.ranks*r.Microbatches*r.MicrobatchSize)}, r.ranks
	for row := range r.Rank {
		first, width := r.Span(row)
		for rank := first; rank < first+width; rank++ {
			x.rowAt[(int(r.Microbatch[row])*dp+rank)*r.MicrobatchSize+int(r.Position[row])] = int32(row)
		}
	}
	x.start = make([]int32, len(count)+1)
	for row, n := range count {
		x.start[row+1] = x.start[row] + n
	}
	x.describe(r.RowOf, buf)
	return x
}

// countRows returns the number of samples of each row.
func countRows(rowOf []int32, rows int) []int32 {
	count := make([]int32, rows)
	for _, row := range rowOf {
		if row >= 0 {
			count[row]++
		}
	}
	return count
}

// describe sorts samples by row, writes what parts say of them in that order, so that parts are copied,
// and numbers the blocks of all samples. A source gives its samples block by block, so the block of the
// sample before is mostly the one. What is said of a sample lies together: there are as many places to
// write to as rows, and a cache has room for one line of each, not for several.
func (x *index) describe(rowOf []int32, buf *dgraph.Buffer) {
	type block struct {
		seq    int64
		number uint32
	}
	numbers := map[Block]uint32{}
	var last []block // of each source, that of its last sample
	n, next := len(rowOf), slices.Clone(x.start)
	sources, seqs, places, tokens := buf.Source[:n], buf.Seq[:n], buf.Index[:n], buf.Tokens[:n]
	x.samples, x.said = make([]int32, x.start[len(x.start)-1]), make([]Sample, x.start[len(x.start)-1])
	for i, row := range rowOf {
		source, seq := sources[i], seqs[i]
		for int(source) >= len(last) {
			last = append(last, block{seq: -1}) // blocks count from 0
		}
		of := &last[source]
		if of.seq != seq {
			b := Block{source, seq}
			number, ok := numbers[b]
			if !ok {
				number = uint32(len(x.blocks))
				numbers[b], x.blocks = number, append(x.blocks, b)
			}
			*of = block{seq, number}
		}
		if row >= 0 {
			at := next[row]
			next[row] = at + 1
			x.samples[at] = int32(i)
			x.said[at] = Sample{of.number, uint32(places[i]), uint32(tokens[i])}
		}
	}
}

// row returns what is said of the samples of a row.
func (x *index) row(row int32) []Sample { return x.said[x.start[row]:x.start[row+1]] }

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
				samples += int(c.start[row+1] - c.start[row])
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
	p, samples := &c.part, c.index.row(row)
	p.Rows, p.Rank = append(p.Rows, uint32(row)), append(p.Rank, rank)
	p.Microbatch, p.Position = append(p.Microbatch, uint32(microbatch)), append(p.Position, uint32(position))
	p.RowSamples = append(p.RowSamples, uint32(len(samples)))
	at, end := len(p.SampleIndex), len(p.SampleIndex)+len(samples)
	p.SampleBlock, p.SampleIndex, p.SampleLength = p.SampleBlock[:end], p.SampleIndex[:end], p.SampleLength[:end]
	blocks, places, lengths := p.SampleBlock[at:], p.SampleIndex[at:], p.SampleLength[at:]
	for i := range samples {
		s := &samples[i]
		if c.local[s.Block] == 0 {
			c.used = append(c.used, s.Block)
			c.local[s.Block] = uint32(len(c.used))
		}
		blocks[i], places[i], lengths[i] = c.local[s.Block]-1, s.Index, s.Tokens
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
