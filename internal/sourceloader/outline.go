package sourceloader

import (
	"context"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// Outline is what a plan needs of a block. Samples are let go of one by one while the block is read: what stays of
// them are places, lengths, bounds of masks and the sizes of what is beside their tokens. It is read-only once made.
type Outline struct {
	block  *Block // without samples
	bytes  int64  // that these take in a loader
	Places []order.Place
	Masked [][]int32 // bounds of the runs of tokens without loss; nil if all tokens of the source carry loss
	Beside []Beside  // nil if the source keeps no columns and has no images
}

// Beside is what a sample has beside its tokens.
type Beside struct {
	Kept, Values int64 // bytes of the columns it keeps, and how many have a value
	Images       int64 // bytes, as they were read
}

// Outline reads block seq as Read does, and keeps none of its samples.
func (s *Source) Outline(ctx context.Context, st store.Store, worker *transform.Worker, seq int64, bans Bans) (*Outline, error) {
	var o outlining
	r := s.reading(worker, nil)
	r.visit = o.sample
	if err := r.chunks(ctx, st, seq); err != nil {
		return nil, err
	}
	b := r.finish(seq, bans)
	return &Outline{
		block: b, bytes: b.frameBytes() + o.tokens.bytes() + o.bytes,
		Places: arranged(b, r.places), Masked: arranged(b, o.masked), Beside: arranged(b, o.beside),
	}, nil
}

// Samples reads block seq as Read does, and gives the tokens of each sample to visit, with the place that it was read at. They
// are valid until it returns.
func (s *Source) Samples(ctx context.Context, st store.Store, worker *transform.Worker, seq int64, visit func(order.Place, []int32)) error {
	r := s.reading(worker, nil)
	r.visit = func(b *Block, at int) { visit(r.places[at], b.tokens.at(b.spans[at])) }
	return r.chunks(ctx, st, seq)
}

// Bytes is the memory that the block takes in a loader.
func (o *Outline) Bytes() int64 { return o.bytes }

// Report is what the planner learns of the block.
func (o *Outline) Report(source uint32, seq uint64) *pb.BlockRead {
	r := o.block.Report(source, seq)
	r.Bytes = uint64(o.bytes)
	return r
}

// arranged are those of a block's samples in its order, from reading order; nil stays nil.
func arranged[T any](b *Block, read []T) []T {
	if read == nil {
		return nil
	}
	sorted := make([]T, len(read))
	for i, at := range b.Order {
		sorted[i] = read[at]
	}
	return sorted
}

// outlining collects an outline in reading order.
type outlining struct {
	tokens slabSizes
	bytes  int64 // of all else
	masked [][]int32
	beside []Beside
}

// sample takes what is kept of a sample that was read, which is the last one of b.
func (o *outlining) sample(b *Block, at int) {
	o.tokens.add(int(b.spans[at].length))
	var x Beside
	for _, column := range b.kept {
		v := column[at-b.gone]
		if v != nil {
			x.Kept, x.Values = x.Kept+int64(len(v)), x.Values+1
		}
		o.bytes += keptMemory(v)
	}
	if b.hasMasks {
		o.masked = append(o.masked, b.masked[at-b.gone])
		o.bytes += maskMemory(b.masked[at-b.gone])
	}
	if b.hasImages {
		for i := range b.images[at] {
			x.Images += int64(len(b.images[at][i].Data))
		}
		o.bytes += imageMemory(b.images[at])
	}
	if len(b.kept) > 0 || b.hasImages {
		o.beside = append(o.beside, x)
	}
}

// slabSizes are the sizes of slabs that are not there.
type slabSizes struct {
	some        bool
	full        int64 // bytes of all but the open one
	size, taken int   // tokens of that
	total       int   // tokens of all
}

// add adds a sample as slabs do.
func (s *slabSizes) add(tokens int) {
	fits := s.some && s.size-s.taken >= tokens
	size, own := slabFor(s.total, tokens)
	s.total += tokens
	switch {
	case fits:
		s.taken += tokens
	case own && s.some:
		s.full += slabBytes(size)
	default:
		if s.some {
			s.full += slabBytes(s.size)
		}
		s.some, s.size, s.taken = true, size, tokens
	}
}

// bytes is their memory once the last one was trimmed.
func (s *slabSizes) bytes() int64 {
	if !s.some {
		return 0
	}
	return s.full + slabBytes(s.taken)
}
