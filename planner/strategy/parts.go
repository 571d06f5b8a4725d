package strategy

import (
	"slices"

	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/place"
)

// Block names a block of a source.
type Block struct {
	Source int32
	Seq    int64
}

// Part is what a constructor does of a step: the rows of its buckets and the images
// that their ranks encode. Rows come in the order of delivery, by microbatch, then by
// DP rank and position; samples row by row, in the order of the row.
type Part struct {
	Rows       []uint32 // numbers in the global batch
	Rank       []uint32 // DP rank of each row
	Microbatch []uint32 // slot of each row
	Position   []uint32 // place of each row in its microbatch
	RowSamples []uint32 // samples of each row

	Blocks       []Block  // that samples and images come from, in the order of their use
	SampleBlock  []uint32 // of each sample: an index into Blocks
	SampleIndex  []uint32 // place in the block
	SampleLength []uint32 // tokens

	ImageBlock   []uint32 // of each image: an index into Blocks
	ImageSample  []uint32 // place of its sample in the block
	ImageNumber  []uint32 // which image of the sample, from 0
	ImageEncoder []uint32 // bucket of Result.Encoders that encodes it
}

// ConstructorDoPlan returns the part of the constructor that serves these DP ranks:
// constructor_do_plan. Ranks that the mesh does not have get nothing. Its first call
// for a result prepares the others, so calls for one result do not run at the same time.
func ConstructorDoPlan(r *Result, buf *dgraph.Buffer, buckets []uint32) Part {
	if r.index == nil {
		r.index = newIndex(r, buf)
	}
	dp, size := r.ranks(), r.MicrobatchSize
	mine := slices.Clone(buckets)
	slices.Sort(mine)
	mine = slices.DeleteFunc(slices.Compact(mine), func(b uint32) bool { return int(b) >= dp })
	c := cutter{index: r.index, buf: buf}
	c.makeRoom(r, mine)
	for microbatch := range r.Microbatches {
		for _, rank := range mine {
			for position := range size {
				c.row(r.index.rowAt[(microbatch*dp+int(rank))*size+position], rank, microbatch, position)
			}
		}
	}
	if r.Encoder != nil {
		for _, rank := range mine {
			c.images(rank, r.Encoder)
		}
	}
	return c.finish()
}

// index finds the rows and images of a DP rank, and the blocks of samples.
type index struct {
	rowAt                  []int32 // (microbatch x dp + rank) x size + position -> row
	start, samples         []int32 // samples by row
	imageStart, imageOrder []int32 // images by DP rank of their encoder
	sampleOf               []int32 // image -> sample

	blocks  []Block // of all samples
	blockOf []int32 // sample -> block
	local   []int32 // block -> its number in the part that is being cut, or -1
}

func newIndex(r *Result, buf *dgraph.Buffer) *index {
	x, dp := &index{rowAt: make([]int32, len(r.Rank))}, r.ranks()
	for row, rank := range r.Rank {
		x.rowAt[(int(r.Microbatch[row])*dp+int(rank))*r.MicrobatchSize+int(r.Position[row])] = int32(row)
	}
	x.start, x.samples = dgraph.ByRow(r.RowOf, len(r.Rank))
	x.numberBlocks(buf)
	if r.Encoder != nil {
		x.sampleOf = make([]int32, len(r.Encoder))
		for i := range buf.Len() {
			first, end := buf.ImagesOf(i)
			for image := first; image < end; image++ {
				x.sampleOf[image] = int32(i)
			}
		}
		x.imageStart, x.imageOrder = dgraph.ByRow(r.encoderRanks(), dp)
	}
	return x
}

// numberBlocks numbers the blocks of all samples. A source gives its samples block by
// block, so the block of the sample before is mostly the one.
func (x *index) numberBlocks(buf *dgraph.Buffer) {
	numbers := map[Block]int32{}
	var last []int32 // of each source, the block of its last sample
	x.blockOf = make([]int32, buf.Len())
	for i, source := range buf.Source {
		for int(source) >= len(last) {
			last = append(last, -1)
		}
		b := Block{source, buf.Seq[i]}
		if at := last[source]; at < 0 || x.blocks[at] != b {
			number, ok := numbers[b]
			if !ok {
				number = int32(len(x.blocks))
				numbers[b], x.blocks, x.local = number, append(x.blocks, b), append(x.local, -1)
			}
			last[source] = number
		}
		x.blockOf[i] = last[source]
	}
}

func (r *Result) ranks() int { return len(r.Rank) / (r.Microbatches * r.MicrobatchSize) }

// encoderRanks returns the DP rank that encodes each image, -1 for images that wait. A
// bucket lies in one DP rank at every axis.
func (r *Result) encoderRanks() []int32 {
	rankOf := make([]int32, r.Encoders.Len())
	for bucket := range rankOf {
		rankOf[bucket] = dpOf(r.Encoders, r.tree, bucket)
	}
	ranks := make([]int32, len(r.Encoder))
	for image, bucket := range r.Encoder {
		if ranks[image] = -1; bucket >= 0 {
			ranks[image] = rankOf[bucket]
		}
	}
	return ranks
}

// dpOf returns the DP rank that a bucket lies in.
func dpOf(buckets place.Buckets, tree *place.Tree, bucket int) int32 {
	first := bucket
	if buckets.Axis() != "world" { // there a bucket is a rank
		ranks, _ := buckets.Ranks(bucket)
		for rank := range ranks {
			first = rank
			break
		}
	}
	at, _ := tree.Coordinates(first)
	return int32(at.DP)
}

// cutter writes a part.
type cutter struct {
	*index
	part Part
	used []int32 // blocks, in the order of the part
	buf  *dgraph.Buffer
}

// makeRoom makes columns of the right size.
func (c *cutter) makeRoom(r *Result, mine []uint32) {
	dp, rows, samples, images := r.ranks(), len(mine)*r.Microbatches*r.MicrobatchSize, 0, 0
	for _, rank := range mine {
		for m := range r.Microbatches {
			at := (m*dp + int(rank)) * r.MicrobatchSize
			for _, row := range c.rowAt[at : at+r.MicrobatchSize] {
				samples += int(c.start[row+1] - c.start[row])
			}
		}
		if r.Encoder != nil {
			images += int(c.imageStart[rank+1] - c.imageStart[rank])
		}
	}
	all := make([]uint32, 5*rows+3*samples+4*images)
	cut := func(n int) []uint32 {
		column := all[:0:n]
		all = all[n:]
		return column
	}
	c.part = Part{
		Rows: cut(rows), Rank: cut(rows), Microbatch: cut(rows), Position: cut(rows), RowSamples: cut(rows),
		SampleBlock: cut(samples), SampleIndex: cut(samples), SampleLength: cut(samples),
		ImageBlock: cut(images), ImageSample: cut(images), ImageNumber: cut(images), ImageEncoder: cut(images),
	}
}

func (c *cutter) row(row int32, rank uint32, microbatch, position int) {
	p, samples := &c.part, c.samples[c.start[row]:c.start[row+1]]
	p.Rows, p.Rank = append(p.Rows, uint32(row)), append(p.Rank, rank)
	p.Microbatch, p.Position = append(p.Microbatch, uint32(microbatch)), append(p.Position, uint32(position))
	p.RowSamples = append(p.RowSamples, uint32(len(samples)))
	for _, i := range samples {
		p.SampleBlock = append(p.SampleBlock, c.block(i))
		p.SampleIndex = append(p.SampleIndex, uint32(c.buf.Index[i]))
		p.SampleLength = append(p.SampleLength, uint32(c.buf.Tokens[i]))
	}
}

// images adds the images that the ranks of a DP rank encode.
func (c *cutter) images(rank uint32, encoder []int32) {
	p := &c.part
	for _, image := range c.imageOrder[c.imageStart[rank]:c.imageStart[rank+1]] {
		sample := c.sampleOf[image]
		p.ImageBlock = append(p.ImageBlock, c.block(sample))
		p.ImageSample = append(p.ImageSample, uint32(c.buf.Index[sample]))
		p.ImageNumber = append(p.ImageNumber, uint32(image-c.buf.ImageOffsets[sample]))
		p.ImageEncoder = append(p.ImageEncoder, uint32(encoder[image]))
	}
}

// block returns the number of a sample's block in the part.
func (c *cutter) block(sample int32) uint32 {
	b := c.blockOf[sample]
	if c.local[b] < 0 {
		c.local[b] = int32(len(c.used))
		c.used = append(c.used, b)
	}
	return uint32(c.local[b])
}

// finish adds the blocks and leaves the index as it was.
func (c *cutter) finish() Part {
	c.part.Blocks = make([]Block, len(c.used))
	for k, b := range c.used {
		c.part.Blocks[k] = c.blocks[b]
		c.local[b] = -1
	}
	return c.part
}
