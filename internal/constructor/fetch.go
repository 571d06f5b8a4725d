package constructor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/constructor/assemble"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/handover"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
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

	undecoded int64 // bytes of the pixels of images that came as they are in their files
}

// row is one assembled row of a step.
type row struct {
	number     uint32 // in the global batch
	rank       uint32 // DP rank, or the first of the ranks that share it
	width      uint32 // of them; 0 if rows have one width
	microbatch uint32
	batch.Row
	sources []assemble.Source // of its images
	info    []byte            // a RowInfo
}

func (r *row) digest() [32]byte { return batch.RowDigest(r.Row) }

// peers are the loaders, by their number in the placement. It is safe for
// concurrent use.
type peers struct {
	directory *handover.Directory

	mu        sync.Mutex // guards the fields below; never held during a call
	addresses []string
	sources   []handover.Source
	logged    map[string]time.Time // when the loss of a loader was last logged
}

func newPeers(d *handover.Directory) *peers {
	return &peers{directory: d, logged: map[string]time.Time{}}
}

func (p *peers) set(addresses []string) {
	sources := p.directory.Place(addresses)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addresses, p.sources = addresses, sources
}

// source returns loader i; any other will do if it is gone.
func (p *peers) source(i int) (s handover.Source, address string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.addresses) == 0 {
		return nil, "", fault.Lostf("no loader is connected to the planner")
	}
	i %= len(p.addresses)
	return p.sources[i], p.addresses[i], nil
}

// fetch gets all samples of a plan and lays them out in rows.
func (c *Constructor) fetch(ctx context.Context, p *pb.StepPlan) (*step, error) {
	asks, at := asksOf(p)
	sets := make([]samples.Set, len(p.Blocks))
	byLoader := map[uint32][]int{}
	for b, block := range p.Blocks {
		byLoader[block.Loader] = append(byLoader[block.Loader], b)
	}
	g, ctx := errgroup.WithContext(ctx)
	for loader, blocks := range byLoader {
		g.Go(func() error {
			req := &pb.FetchRequest{}
			for _, b := range blocks {
				req.Blocks = append(req.Blocks, asks[b])
			}
			got, err := c.fetchFrom(ctx, int(loader), req)
			if err != nil {
				return err
			}
			if len(got) != len(blocks) {
				return fmt.Errorf("loader %d gave %d blocks of %d", loader, len(got), len(blocks))
			}
			for i, b := range blocks {
				sets[b] = got[i]
			}
			return nil
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

// lostLogEvery is the time between two log lines about a loader that stays lost.
const lostLogEvery = 30 * time.Second

// fetchFrom asks a loader, and the others in turn while it is lost.
func (c *Constructor) fetchFrom(ctx context.Context, loader int, req *pb.FetchRequest) ([]samples.Set, error) {
	pauses := rpc.Backoff{Name: c.opts.ID}
	for attempt := 0; ; attempt++ {
		sets, address, err := c.fetchOnce(ctx, loader+attempt, req)
		if err == nil {
			return sets, nil
		}
		if ctx.Err() != nil || fault.ClassOf(err) != fault.Lost {
			return nil, fault.As(fault.ClassOf(err), fmt.Errorf("fetching samples of source %d, block %d from loader %s: %w",
				req.Blocks[0].Source, req.Blocks[0].Seq, address, err))
		}
		c.lostLoader(address, err)
		_ = pauses.Wait(ctx) // if ctx ends, so does the next attempt
	}
}

// lostLoader logs the loss of a loader, once in a while for each: every
// fetch from it meets it, several times a second.
func (c *Constructor) lostLoader(address string, err error) {
	if c.peers.shouldLog(address, time.Now()) {
		c.opts.Log.Warn("loader lost, trying the loaders in turn", "address", address, "err", err)
	}
}

// shouldLog reports whether the loss of a loader was not logged for a while, and notes that it
// is now.
func (p *peers) shouldLog(address string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, ok := p.logged[address]; ok && now.Sub(last) < lostLogEvery {
		return false
	}
	p.logged[address] = now
	return true
}

func (c *Constructor) fetchOnce(ctx context.Context, loader int, req *pb.FetchRequest) ([]samples.Set, string, error) {
	source, address, err := c.peers.source(loader)
	if err != nil {
		return nil, address, err
	}
	sets, err := source.Samples(ctx, req)
	return sets, address, err
}

// layOut puts samples where the plan says. The rows borrow the sets' memory.
func layOut(p *pb.StepPlan, sets []samples.Set, at []int, from content) (_ *step, err error) {
	s := &step{number: p.Step, length: int(p.SequenceLength), total: p.GlobalRows, from: from}
	k, image := 0, 0
	for i, number := range p.Rows {
		r := row{number: number, rank: p.RowRank[i], microbatch: p.RowMicrobatch[i]}
		info := &pb.RowInfo{Row: number}
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
			if set.Images != nil {
				if err := r.addImages(set.Images[at[k]], p.Blocks[b].Source, p.Images, &image, from.images); err != nil {
					return nil, err
				}
			}
			info.Lengths = append(info.Lengths, p.SampleLength[k])
			info.Sources = append(info.Sources, p.Blocks[b].Source)
			info.Seqs = append(info.Seqs, p.Blocks[b].Seq)
			info.Indices = append(info.Indices, p.SampleIndex[k])
			names := from.kept[p.Blocks[b].Source].GetNames()
			for col := range min(len(set.Kept), len(names)) {
				if v := set.Kept[col][at[k]]; v != nil {
					r.Kept = append(r.Kept, batch.Kept{Document: len(r.Segments) - 1, Column: names[col], Data: v})
					s.bytes += int64(len(v))
				}
			}
			s.bytes += int64(4 * len(tokens))
			k++
		}
		slices.SortStableFunc(r.Kept, func(a, b batch.Kept) int {
			return cmp.Or(a.Document-b.Document, strings.Compare(a.Column, b.Column))
		})
		if r.info, err = proto.Marshal(info); err != nil {
			return nil, err
		}
		s.rows = append(s.rows, r)
	}
	if n := len(p.Images.GetRowEncoder()); image != n {
		return nil, fmt.Errorf("the plan has %d images in rows, their samples have %d", n, image)
	}
	return s, nil
}
