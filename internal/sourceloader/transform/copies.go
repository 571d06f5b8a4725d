package transform

import "slices"

// Copies holds samples that outlive their records, in few pieces of memory: a record may give a million of a few
// bytes each. The zero value is empty. It is not safe for concurrent use.
type Copies struct {
	samples []copied
	rest    []Sample // of those that have more than tokens, without their tokens
	slab    []int32
	bytes   int64
}

// copied is a sample. Its rest is that before this one in Copies.rest, 0 if it has none.
type copied struct {
	tokens []int32
	row    int64
	piece  int32
	rest   int32
}

// copiedBytes is the memory of a sample without what it has.
const copiedBytes = 40

// Slabs of tokens double from the first size to the last. A sample of more than ownTokens has memory of its own, so that
// little of a slab is left when a sample finds no room there.
const (
	firstSlab = 1 << 8
	lastSlab  = 1 << 16
	ownTokens = lastSlab / 8
)

// Len is the number of samples.
func (c *Copies) Len() int { return len(c.samples) }

// Bytes is the memory of the samples.
func (c *Copies) Bytes() int64 { return c.bytes }

// Add appends a copy of a sample.
func (c *Copies) Add(s *Sample) {
	c.bytes += copiedBytes + 4*int64(len(s.Tokens)+len(s.Masked))
	own := copied{tokens: c.keep(s.Tokens), row: s.Row, piece: s.Piece}
	if s.Masked != nil || s.Extras != nil || s.Images != nil {
		r := Sample{Masked: slices.Clone(s.Masked), Images: slices.Clone(s.Images), Extras: slices.Clone(s.Extras)}
		for i, v := range r.Extras {
			r.Extras[i] = slices.Clone(v)
			c.bytes += int64(len(v))
		}
		c.rest = append(c.rest, r)
		own.rest = int32(len(c.rest))
	}
	c.samples = append(c.samples, own)
}

// keep returns a copy of the tokens of one sample.
func (c *Copies) keep(tokens []int32) []int32 {
	if len(tokens) > ownTokens {
		return slices.Clone(tokens)
	}
	if cap(c.slab)-len(c.slab) < len(tokens) {
		c.slab = make([]int32, 0, max(len(tokens), min(max(2*cap(c.slab), firstSlab), lastSlab)))
	}
	at := len(c.slab)
	c.slab = append(c.slab, tokens...)
	return c.slab[at:len(c.slab):len(c.slab)]
}

// Sample sets s to sample i, which borrows from c.
func (c *Copies) Sample(i int, s *Sample) {
	own := &c.samples[i]
	*s = Sample{}
	if own.rest > 0 {
		*s = c.rest[own.rest-1]
	}
	s.Row, s.Piece, s.Tokens = own.row, own.piece, own.tokens
}
