package constructor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/constructor/assemble"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
)

// step is one built step: the rows of this constructor's buckets.
type step struct {
	number uint64
	length int    // tokens of a row
	total  uint32 // rows of the global batch
	rows   []row  // by microbatch, then by DP rank, then by place in the microbatch
	images map[slot][]picture
	from   content
	bytes  int64
	loans  []any // of the samples whose tokens are in loaders' memory

	undecoded int64 // bytes of the pixels of images that came as they are in their files
	scratch   int64 // that decoding these takes, one after the other
	largest   int64 // of one of them
}

// row is one assembled row of a step.
type row struct {
	number     uint32 // in the global batch
	rank       uint32 // DP rank, or the first of the ranks that share it
	width      uint32 // of them; 0 if there is no pool
	microbatch uint32
	batch.Row
	sources []assemble.Source // of its images
	origins []byte            // of its documents, as tables have them
}

// fetch gets all samples of a plan and lays them out in rows.
func (c *Constructor) fetch(ctx context.Context, p *pb.StepPlan) (*step, error) {
	asks, at := asksOf(p)
	blocks := make([]wanted, len(asks))
	for b, a := range asks {
		blocks[b] = wanted{int(p.Blocks[b].Loader), a}
	}
	sets := make([]samples.Set, len(asks))
	g, ctx := errgroup.WithContext(ctx)
	for _, part := range c.peers.view().parts(blocks) {
		g.Go(func() error {
			mine := make([]wanted, len(part))
			for i, b := range part {
				mine[i] = blocks[b]
			}
			got, err := c.fetchFrom(ctx, mine)
			for i := range got {
				sets[part[i]] = got[i]
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	s, err := layOut(p, sets, at, c.job.now())
	if err != nil {
		return nil, err
	}
	return s, s.layOutImages(p, asks, sets)
}

// asksOf turns a plan into one request per block, with rising indices, and says
// at which place in its block's answer each sample comes.
func asksOf(p *pb.StepPlan) (asks []*pb.BlockSamples, at []int) {
	asks = make([]*pb.BlockSamples, len(p.Blocks))
	for b, block := range p.Blocks {
		asks[b] = &pb.BlockSamples{Source: block.Source, Seq: block.Seq, Sum: block.Sum}
	}
	for k, b := range p.SampleBlock {
		asks[b].Indices = append(asks[b].Indices, p.SampleIndex[k])
	}
	askImages(p.Images, asks)
	for _, a := range asks {
		slices.Sort(a.Indices)
		a.Indices = slices.Compact(a.Indices)
	}
	at = make([]int, len(p.SampleBlock))
	for k, b := range p.SampleBlock {
		at[k] = placeOf(asks[b], p.SampleIndex[k])
	}
	return asks, at
}

// placeOf is the place of a sample in the answer to a request that has it.
func placeOf(ask *pb.BlockSamples, index uint32) int {
	at, _ := slices.BinarySearch(ask.Indices, index)
	return at
}

// layOut puts samples where the plan says. The rows borrow the sets' memory.
func layOut(p *pb.StepPlan, sets []samples.Set, at []int, from content) (*step, error) {
	s := &step{number: p.Step, length: int(p.SequenceLength), total: p.GlobalRows, from: from}
	for i := range sets {
		if loan := sets[i].Loan; loan != nil && !slices.Contains(s.loans, loan) {
			s.loans = append(s.loans, loan)
		}
	}
	k, image := 0, 0
	for i, number := range p.Rows {
		r := row{number: number, rank: p.RowRank[i], microbatch: p.RowMicrobatch[i]}
		if p.RowWidth != nil {
			r.width = p.RowWidth[i]
		}
		for range p.RowSamples[i] {
			b := p.SampleBlock[k]
			set := &sets[b]
			if at[k] >= set.Len() {
				return nil, fmt.Errorf("source %d, block %d: sample %d is missing in the loader's answer", p.Blocks[b].Source, p.Blocks[b].Seq, p.SampleIndex[k])
			}
			tokens := set.Sample(at[k])
			if len(tokens) != int(p.SampleLength[k]) {
				return nil, fmt.Errorf("source %d, block %d, sample %d has %d tokens, the plan says %d: the source is not the one that was planned with",
					p.Blocks[b].Source, p.Blocks[b].Seq, p.SampleIndex[k], len(tokens), p.SampleLength[k])
			}
			r.Segments = append(r.Segments, tokens)
			if set.Masked != nil {
				r.addMask(set.Masked[at[k]])
			}
			if set.Images != nil {
				if err := r.addImages(set.Images[at[k]], p.Blocks[b].Source, p.Images, &image, from.images); err != nil {
					return nil, err
				}
			}
			r.origins = batch.AppendOrigin(r.origins, batch.Origin{Seq: p.Blocks[b].Seq, Length: p.SampleLength[k], Source: p.Blocks[b].Source, Index: p.SampleIndex[k]})
			kept, err := r.addKept(set, at[k], p.Blocks[b].Source, from)
			if err != nil {
				return nil, err
			}
			s.bytes += kept + int64(4*len(tokens))
			k++
		}
		slices.SortStableFunc(r.Kept, func(a, b batch.Kept) int {
			return cmp.Or(a.Document-b.Document, strings.Compare(a.Column, b.Column))
		})
		s.rows = append(s.rows, r)
	}
	if n := len(p.Images.GetRowEncoder()); image != n {
		return nil, fmt.Errorf("the plan has %d images in rows, their samples have %d", n, image)
	}
	return s, nil
}

// addKept gives a row the kept columns of its last document, and returns their bytes.
func (r *row) addKept(set *samples.Set, at int, source uint32, from content) (bytes int64, err error) {
	if int(source) >= len(from.kept) {
		return 0, fmt.Errorf("source %d is none of the job's %d: it had joined, and the job began again without it", source, len(from.kept))
	}
	names := from.kept[source].GetNames()
	for col := range min(len(set.Kept), len(names)) {
		if v := set.Kept[col][at]; v != nil {
			r.Kept = append(r.Kept, batch.Kept{Document: len(r.Segments) - 1, Column: names[col], Data: v})
			bytes += int64(len(v))
		}
	}
	return bytes, nil
}
