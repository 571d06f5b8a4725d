package sourceloader

import (
	"context"
	"math"

	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// Passes read sources in the order of their files, for a program that wants all samples of a source
// once and blocks of none. It is safe for concurrent use.
type Passes struct{ executor *executor }

// give gets the samples of a pass, each with the place that it was read at. A sample is valid until
// it returns.
type give func(order.Place, *transform.Sample) error

// ended hears of a chunk whose samples were all given, with what the pass has read and left out so far.
type ended func(chunk int64, found *Block)

// NewPasses returns passes whose functions work within a budget of bytes, for as many chunks at a time as there
// are workers, until ctx ends. Close returns when they have ended.
func NewPasses(ctx context.Context, budget int64, workers int) (*Passes, error) {
	x, err := newExecutor(ctx, newCache(ctx, budget, nil, nil), workers)
	return &Passes{x}, err
}

// Close waits for what the passes were doing when their context ended.
func (p *Passes) Close() { <-p.executor.over }

// Open opens source i of a job. Its samples are whole: how long those of a row may be is of no
// concern to a pass.
func (p *Passes) Open(ctx context.Context, st store.Store, job *jobspec.Job, i int, shared *transform.Shared) (*Source, error) {
	spec := job.ResolvedSources()[i]
	spec.Long = jobspec.Long{}
	shared.Room = p.executor.cache.room
	s, err := open(ctx, st, spec, job.Seed, math.MaxInt32, shared)
	if err == nil {
		s.flow, err = p.executor.flow(s)
	}
	return s, err
}

// Pass reads chunks of the source and gives their samples to each in the order of the chunks, of the file and
// of the record: a chain with functions works on as many chunks at a time as have room, any other on one after the other, by as
// many workers as there are. Behind each chunk end hears of it, unless it is nil. seq is the number of the pass: where several want
// the same functions, the lowest goes first. workers, at least one, are of the source's own chain. What was read and
// left out the block says, which has no sample. Bad records are left out, or end the pass, as
// the source's policy says; how many may be left out is the caller's to see.
func (s *Source) Pass(ctx context.Context, st store.Store, workers []*transform.Worker, seq int64, chunks []int64, each give, end ended) (*Block, error) {
	r := s.reading(workers[0], nil)
	r.others = workers[1:]
	r.pass, r.give, r.ended = chunks, each, end
	err := r.chunks(ctx, st, seq)
	return r.block, err
}
