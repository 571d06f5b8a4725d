// Package reference is the specification of Millrace, as a program: it computes
// the batches of a job and their digest chain with nothing but loops.
//
// It has no engine, network, concurrency, buffer limit or recovery. It calls the
// pure leaves (formats, transforms, the keyed order, the weights of a step,
// packing, digests), which have tests of their own, and nothing else. Whatever
// the service does, with whatever faults, has to end with the digest that this
// reader ends with.
package reference

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/jobspec"
	"github.com/millrace-data/millrace/planner/mix"
	"github.com/millrace-data/millrace/sourceloader/format"
	"github.com/millrace-data/millrace/sourceloader/order"
	"github.com/millrace-data/millrace/sourceloader/store"
	"github.com/millrace-data/millrace/sourceloader/transform"
)

const (
	carry   = 32 // samples carried from step to step at most
	whole   = mix.Bits
	kept    = 12 // fraction bits of a deficit between steps
	rounded = whole - kept
)

// Step is one global batch, and the digest of the job up to and with it.
type Step struct {
	Step   int64
	Rows   []batch.Row
	Drawn  []int64 // tokens by source
	Digest [32]byte
}

// Read computes the first steps of a job (fewer if the data ends before; all if
// steps is negative) and gives each to visit. It returns the last digest.
func Read(ctx context.Context, st store.Store, job *jobspec.Job, steps int64, visit func(*Step) error) (n int64, digest [32]byte, err error) {
	sources, manifests, err := openAll(ctx, st, job)
	if err != nil {
		return 0, digest, err
	}
	weights := make([][]float64, len(job.Mix.Stages))
	for k, stage := range job.Mix.Stages {
		for _, s := range sources {
			weights[k] = append(weights[k], stage.Weights[s.Order.Source])
		}
	}
	var stages []mix.Stage
	for k, stage := range job.Mix.Stages {
		stages = append(stages, mix.Stage{From: stage.From, Ramp: stage.Ramp, Over: stage.Over, Weights: weights[k]})
	}
	r := &reader{job: job, sources: sources, schedule: mix.NewSchedule(stages)}
	digest = batch.Root(job.Identity(), batch.Combine(manifests))
	for n = 0; n != steps; n++ {
		rows, err := r.step(n)
		if err != nil || rows == nil {
			return n, digest, err
		}
		var rowDigests [][32]byte
		for _, row := range rows {
			rowDigests = append(rowDigests, batch.RowDigest(row))
		}
		digest = batch.Chain(digest, batch.StepDigest(n, rowDigests))
		if visit != nil {
			if err := visit(&Step{n, rows, r.drawn(), digest}); err != nil {
				return n, digest, err
			}
		}
	}
	return n, digest, nil
}

// Manifests returns the digests of the manifests of a job's sources as they are.
func Manifests(ctx context.Context, st store.Store, job *jobspec.Job) ([][32]byte, error) {
	_, manifests, err := openAll(ctx, st, job)
	return manifests, err
}

func openAll(ctx context.Context, st store.Store, job *jobspec.Job) (sources []*source, manifests [][32]byte, err error) {
	tokenizers := transform.NewTokenizers()
	specs := job.ResolvedSources()
	for i := range specs {
		s, err := open(ctx, st, job, &specs[i], tokenizers)
		if err != nil {
			return nil, nil, err
		}
		sources = append(sources, s)
		manifests = append(manifests, s.Manifest.Digest())
	}
	return sources, manifests, nil
}

type reader struct {
	job      *jobspec.Job
	sources  []*source
	schedule mix.Schedule
	carried  []sample
	pool     []drawn
}

type sample struct {
	tokens []int32
	kept   []batch.Kept
}

type drawn struct {
	source int
	sample
	live []uint64 // shares at this draw
}

// step draws, packs and returns the rows of one step; nil if there is none.
func (r *reader) step(n int64) ([]batch.Row, error) {
	shares := r.schedule.Shares(n)
	live, gone := shares, make([]bool, len(r.sources))
	r.pool = nil
	tokens := 0
	for _, t := range r.carried {
		r.pool = append(r.pool, drawn{-1, t, nil})
		tokens += len(t.tokens)
	}
	seats, capacity := r.job.Batch.Sequences, r.job.Batch.SequenceLength
	for {
		if r.job.Batch.Packing && tokens >= (seats+min(max(seats/8, 1), 2))*capacity {
			break
		}
		if !r.job.Batch.Packing && len(r.pool) == seats {
			break
		}
		i := r.furthestBehind(live, gone)
		if i < 0 {
			break
		}
		t, err := r.sources[i].next()
		if err != nil {
			return nil, err
		}
		if t.tokens == nil { // this source is at its limit of epochs
			if r.job.Mix.Exhausted != "renormalize" {
				break
			}
			gone[i] = true
			if live = mix.Without(shares, gone); live == nil {
				live = make([]uint64, len(shares))
			}
			continue
		}
		r.pool = append(r.pool, drawn{i, t, live})
		r.account(drawn{i, t, live}, 1)
		tokens += len(t.tokens)
	}
	if len(r.pool) == 0 {
		return nil, nil
	}
	rows, err := r.place(seats, int32(capacity))
	for _, s := range r.sources {
		s.owed = (s.owed + 1<<(rounded-1)) >> rounded << rounded
		s.queue, s.at = s.queue[s.at:], 0
	}
	return rows, err
}

// furthestBehind is the source that is owed most, the first of equals.
func (r *reader) furthestBehind(live []uint64, gone []bool) int {
	best := -1
	for i, s := range r.sources {
		if gone[i] || live[i] == 0 && s.owed <= 0 {
			continue
		}
		if best < 0 || s.owed > r.sources[best].owed {
			best = i
		}
	}
	return best
}

// account owes every source its share of a draw, and takes it off the drawn one.
func (r *reader) account(d drawn, sign int64) {
	units := int64(len(d.tokens))
	if r.job.Mix.Unit == "samples" {
		units = 1
	}
	for i, s := range r.sources {
		s.owed += sign * units * int64(d.live[i])
	}
	r.sources[d.source].owed -= sign * units << whole
}

// place packs the pool; what does not fit is carried over, and draws that would
// be too many to carry are given back to their sources.
func (r *reader) place(seats int, capacity int32) ([]batch.Row, error) {
	var lengths, bins []int32
	for k, d := range r.pool {
		lengths = append(lengths, int32(len(d.tokens)))
		bins = append(bins, int32(k))
	}
	if r.job.Batch.Packing {
		packed, n, err := new(balance.Packer).PackLimited(lengths, len(r.carried), capacity, seats, carry)
		if err != nil {
			return nil, err
		}
		bins = packed
		for len(r.pool) > n {
			last := r.pool[len(r.pool)-1]
			r.account(last, -1)
			r.sources[last.source].at--
			r.pool = r.pool[:len(r.pool)-1]
		}
	}
	rows := make([]batch.Row, seats)
	r.carried = nil
	for k, d := range r.pool {
		if bins[k] < 0 {
			r.carried = append(r.carried, d.sample)
			continue
		}
		row := &rows[bins[k]]
		for _, v := range d.kept {
			row.Kept = append(row.Kept, batch.Kept{Document: len(row.Segments), Column: v.Column, Data: v.Data})
		}
		row.Segments = append(row.Segments, d.tokens)
	}
	slices.SortStableFunc(r.carried, func(a, b sample) int { return len(b.tokens) - len(a.tokens) })
	return rows, nil
}

func (r *reader) drawn() []int64 {
	tokens := make([]int64, len(r.sources))
	for _, d := range r.pool {
		if d.source >= 0 {
			tokens[d.source] += int64(len(d.tokens))
		}
	}
	return tokens
}

// source is one source as an endless queue of samples.
type source struct {
	*order.Source
	ctx    context.Context
	st     store.Store
	spec   *jobspec.Source
	worker *transform.Worker
	epochs int64
	block  int64    // next block to read
	epoch  int64    // samples queued of its epoch
	queue  []sample // samples read, in order
	at     int      // next of them
	gave   bool     // a sample, ever
	owed   int64    // tokens (or samples) behind the schedule, in 2^-32
}

func open(ctx context.Context, st store.Store, job *jobspec.Job, spec *jobspec.Source, tokenizers *transform.Tokenizers) (*source, error) {
	chain, err := transform.Compile(*spec, job.Batch.SequenceLength, tokenizers)
	if err != nil {
		return nil, err // it names the source
	}
	src, err := order.Index(ctx, st, spec, job.Seed, chain.Columns())
	if err != nil {
		return nil, err
	}
	src.Manifest.Encoding = chain.EncodingDigest()
	return &source{Source: src, ctx: ctx, st: st, spec: spec, worker: chain.Worker(), epochs: int64(job.Mix.Epochs)}, nil
}

// next returns the next sample; one without tokens at the limit of epochs.
func (s *source) next() (sample, error) {
	for barren := int64(0); s.at == len(s.queue); barren++ {
		epoch, block := s.Order.Position(s.block)
		over := s.epochs > 0 && epoch >= s.epochs
		if over && s.gave {
			return sample{}, nil
		}
		if over || barren > 2*s.Order.Blocks() {
			return sample{}, fault.Userf("source %q gave no sample in a whole epoch", s.spec.Name)
		}
		if block == 0 {
			s.epoch = 0
		}
		if err := s.readBlock(); err != nil {
			return sample{}, err
		}
	}
	s.at++
	s.gave = true
	return s.queue[s.at-1], nil
}

// readBlock queues the samples of the next block, up to the epoch's limit.
func (s *source) readBlock() error {
	var samples []sample
	var places []order.Place
	for _, chunk := range s.Order.Chunks(s.block) {
		for _, unit := range s.Order.Layout.Units(chunk) {
			err := s.ReadUnit(s.ctx, s.st, unit, func(rec *format.Record) error {
				_, err := s.worker.Apply(rec, func(t *transform.Sample) error {
					samples = append(samples, sample{append([]int32(nil), t.Tokens...), s.keep(t.Extras)})
					places = append(places, order.Place{File: int32(unit.File), Row: t.Row, Piece: t.Piece})
					return nil
				})
				if fault.ClassOf(err) == fault.User && s.spec.BadRecords.Policy == "skip" {
					return nil
				}
				return err
			})
			if err != nil {
				return fmt.Errorf("source %q: %w", s.spec.Name, err)
			}
		}
	}
	for _, i := range s.Order.Sort(s.block, places) {
		if s.spec.Limit > 0 && s.epoch == s.spec.Limit {
			break
		}
		s.queue = append(s.queue, samples[i])
		s.epoch++
	}
	s.block++
	return nil
}

// keep copies what the kept columns of a sample hold.
func (s *source) keep(values [][]byte) (kept []batch.Kept) {
	for c, v := range values {
		if v != nil {
			kept = append(kept, batch.Kept{Column: s.spec.Keep[c], Data: append([]byte{}, v...)})
		}
	}
	slices.SortFunc(kept, func(a, b batch.Kept) int { return strings.Compare(a.Column, b.Column) })
	return kept
}
