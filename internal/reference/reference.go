// Package reference is the specification of Millrace, as a program: it computes
// the batches of a job and their digest chain with nothing but loops.
//
// It has no engine, network, concurrency, buffer limit or recovery. It calls the
// pure leaves (formats, transforms, the keyed order, the weights of a step,
// packing, costs, digests), which have tests of their own, and nothing else. A
// strategy that a program registered is called as it is, by the primitives it uses.
// Whatever the service does, with whatever faults, has to end with the digest
// that this reader ends with.
package reference

import (
	"context"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/planner/change"
	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/jobspec"
	"github.com/millrace-data/millrace/planner/mix"
	"github.com/millrace-data/millrace/sourceloader/store"
	"github.com/millrace-data/millrace/sourceloader/transform"
)

const (
	carry    = 32 // samples carried from step to step at most
	whole    = mix.Bits
	kept     = 12 // fraction bits of a deficit between steps
	rounded  = whole - kept
	substeps = 16 // in a step, with grain: substep
)

// Step is one global batch, and the digest of the job up to and with it.
type Step struct {
	Step           int64
	SequenceLength int
	Rows           []batch.Row
	Places         [][]Place // of the documents of each row
	Drawn          []int64   // tokens by source
	Held           int       // samples that wait for others of their length after the step
	Shares         []uint64  // of the sources at the end of the step, in 2^-32
	Sources        []string
	Digest         [32]byte
}

// Place is where a document comes from.
type Place struct {
	Source string
	File   string // below the folder that the source's files have in common
	Row    int64
	Piece  int32 // of a long record that was split
	Seq    int64 // block of the source's order, counted over epochs
	Index  int32 // place in the block
}

// Read computes the first steps of a job (fewer if the data ends before; all if
// steps is negative) with the changes that were made to it, and gives each to
// visit. Changes come by rising step. It returns the last digest.
func Read(ctx context.Context, st store.Store, job *jobspec.Job, changes []change.Change, steps int64, visit func(*Step) error) (n int64, digest [32]byte, err error) {
	r, manifests, err := open(ctx, st, job)
	if err != nil {
		return 0, digest, err
	}
	r.changes = changes
	digest = batch.Root(job.Identity(), batch.Combine(manifests))
	for n = 0; n != steps; n++ {
		skip, err := r.changeAt(n)
		if err != nil {
			return n, digest, err
		}
		for ; skip > 0; skip-- {
			if rows, err := r.step(n, skip); err != nil || rows == nil {
				return n, digest, err
			}
		}
		rows, err := r.step(n, 0)
		if err != nil || rows == nil {
			return n, digest, err
		}
		var rowDigests [][32]byte
		for _, row := range rows {
			rowDigests = append(rowDigests, batch.RowDigest(row))
		}
		digest = batch.Chain(digest, batch.StepDigest(n, rowDigests))
		if visit != nil {
			if err := visit(&Step{n, r.length, rows, r.places, r.drawn(), len(r.held), r.live, r.names(), digest}); err != nil {
				return n, digest, err
			}
		}
	}
	return n, digest, nil
}

// Manifests returns the digests of the manifests of a job's sources as they are.
func Manifests(ctx context.Context, st store.Store, job *jobspec.Job) ([][32]byte, error) {
	_, manifests, err := open(ctx, st, job)
	return manifests, err
}

func open(ctx context.Context, st store.Store, job *jobspec.Job) (r *reader, manifests [][32]byte, err error) {
	r = &reader{ctx: ctx, st: st, job: job, tokenizers: transform.NewTokenizers(), length: job.Batch.SequenceLength, seats: job.Batch.Sequences, banned: map[ban]bool{}}
	for i, spec := range job.ResolvedSources() {
		s, err := r.open(&spec)
		if err != nil {
			return nil, nil, err
		}
		r.sources = append(r.sources, s)
		r.weighted = append(r.weighted, false)
		for _, stage := range job.Mix.Stages {
			r.weighted[i] = r.weighted[i] || stage.Weights[spec.Name] > 0
		}
		manifests = append(manifests, s.Manifest.Digest())
	}
	var stages []mix.Stage
	for _, stage := range job.Mix.Stages {
		var weights []float64
		for _, s := range r.sources {
			weights = append(weights, stage.Weights[s.spec.Name])
		}
		stages = append(stages, mix.Stage{From: stage.From, Ramp: stage.Ramp, Over: stage.Over, Weights: weights})
	}
	r.schedule = mix.NewSchedule(stages)
	if r.strategy, err = registeredBy(job); err == nil {
		r.model, err = evenBy(job)
	}
	return r, manifests, err
}

type reader struct {
	ctx        context.Context
	st         store.Store
	job        *jobspec.Job
	tokenizers *transform.Tokenizers
	sources    []*source
	weighted   []bool // sources of the spec with a weight in any stage
	schedule   mix.Schedule
	model      cost.Model  // of samples, if rows are evened by cost
	strategy   *registered // if the job names one
	carried    []drawn
	held       []drawn // that wait for others of their length
	pool       []drawn
	tokens     int               // of the pool, as rows count them
	admission  balance.Admission // where rows have several widths: the samples that find room
	waiting    int               // samples of the pool that do not; their tokens do not count
	queue      balance.OutlierQueue
	draws      []drawn  // of this step, those among them that wait
	flushed    []drawn  // that waited, and are in the pool as there was nothing to draw
	live       []uint64 // shares of the last draw
	places     [][]Place

	changes       []change.Change // to come
	set           []uint64        // shares that were set by hand
	added         []uint64        // shares of the sources that joined
	length, seats int             // of rows, and rows of a step
	banned        map[ban]bool
}

type drawn struct {
	source int
	sample
	live  []uint64 // shares at this draw
	step  int64    // in which it was drawn
	waits bool     // for others of its length
}

// step draws, packs and returns the rows of one step; nil if there is none. skip
// counts down the steps that are passed over before it.
func (r *reader) step(n, skip int64) ([]batch.Row, error) {
	bins, err := r.rowOf(n, skip)
	if err != nil || len(r.pool) == 0 {
		return nil, err
	}
	rows := r.rows(bins)
	r.held = r.held[len(r.flushed):]
	for _, s := range r.sources {
		s.settle(r.job.Mix.Draw == "random")
	}
	return rows, nil
}

// rowOf draws a step, and says which row each sample is in, -1 if it waits for the
// next step.
func (r *reader) rowOf(n, skip int64) ([]int32, error) {
	if r.strategy != nil {
		return r.byStrategy(n, skip)
	}
	carried, err := r.draw(n, skip, nil)
	if err != nil || len(r.pool) == 0 {
		return nil, err
	}
	lengths, bins, err := r.pack(carried)
	if err != nil {
		return nil, err
	}
	return bins, r.even(lengths, bins)
}

// draw draws the samples of a step, behind those that waited or are carried into it.
// byHand are shares that a strategy gave; nil: the job's.
func (r *reader) draw(n, skip int64, byHand []uint64) (carried int, err error) {
	mixed := func(part int) []uint64 {
		if byHand != nil {
			return byHand
		}
		return r.shares(n, part)
	}
	gone := make([]bool, len(r.sources))
	for i, s := range r.sources {
		gone[i] = s.paused || s.dropped
	}
	r.begin(n)
	carried, part, stopped := len(r.pool), 0, false
	shares := mixed(part)
	r.live = mix.Without(shares, gone)
	for {
		done, want := r.tokens, (r.seats+min(max(r.seats/8, 1), 2))*r.length
		if !r.job.Batch.Packing {
			done, want = len(r.pool), r.seats
		}
		if done >= want || r.waiting > carry/2 {
			break
		}
		if stopped && r.flush() {
			continue
		} else if stopped {
			break
		}
		if p := done * substeps / want; r.job.Mix.Grain == "substep" && p > part {
			part, shares = p, mixed(p)
			r.live = mix.Without(shares, gone)
		}
		if r.live == nil {
			r.live = make([]uint64, len(r.sources))
		}
		i := r.next(gone, n+skip<<32, len(r.draws))
		if i < 0 {
			stopped = true
			continue
		}
		t, err := r.sources[i].next(r.banned)
		if err != nil {
			return carried, err
		}
		if t.tokens == nil { // this source is at its limit of epochs
			if stopped = r.job.Mix.Exhausted != "renormalize"; stopped {
				continue
			}
			gone[i] = true
			r.live = mix.Without(shares, gone)
			continue
		}
		r.take(drawn{source: i, sample: t, live: r.live, step: n})
	}
	return carried, nil
}

// next is the source to draw from: the one that is owed most, the first of
// equals, or one by chance.
func (r *reader) next(gone []bool, step int64, draw int) int {
	if r.job.Mix.Draw == "random" {
		return int(mix.Pick(r.live, r.job.Seed, step, draw))
	}
	best := -1
	for i, s := range r.sources {
		if gone[i] || r.live[i] == 0 && s.owed <= 0 {
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

// pack packs the pool; what does not fit is left over, and draws that would be too
// many to carry are given back to their sources.
func (r *reader) pack(carried int) (lengths, bins []int32, err error) {
	for k, d := range r.pool {
		lengths = append(lengths, int32(r.job.RowLength(len(d.tokens))))
		bins = append(bins, int32(k))
	}
	if r.job.Batch.Packing {
		packed, n, err := r.intoRows(lengths, carried)
		if err != nil {
			return nil, nil, err
		}
		bins = packed
		for len(r.pool) > n {
			r.giveBack()
		}
	}
	return lengths, bins, nil
}

// rows are those of the samples; what has none is carried over.
func (r *reader) rows(bins []int32) []batch.Row {
	rows := make([]batch.Row, r.count(bins))
	r.places, r.carried = make([][]Place, len(rows)), nil
	for k, d := range r.pool {
		if bins[k] < 0 {
			r.carried = append(r.carried, d)
			continue
		}
		row := &rows[bins[k]]
		for _, v := range d.kept {
			row.Kept = append(row.Kept, batch.Kept{Document: len(row.Segments), Column: v.Column, Data: v.Data})
		}
		for _, x := range d.images {
			x.Document = len(row.Segments)
			row.Images = append(row.Images, x)
		}
		row.Segments = append(row.Segments, d.tokens)
		r.places[bins[k]] = append(r.places[bins[k]], d.place)
	}
	r.sortCarried()
	return rows
}

// evenBy is the cost by which a job evens its rows; nil if it does not.
func evenBy(job *jobspec.Job) (model cost.Model, err error) {
	graph, even := "text", false
	for _, p := range job.Strategy {
		switch {
		case p.Graph != "":
			graph = p.Graph
		case p.Cost != nil && graph == "text":
			if model, err = cost.Parse(p.Cost.Text()); err != nil {
				return nil, err
			}
		case p.Balance != nil && graph == "text":
			even = p.Balance.Level != "inter" && !p.Balance.KeepOrder
		}
	}
	if !even {
		return nil, nil
	}
	return model, nil
}

// even moves samples between rows so that these cost alike, if the job asks for it.
func (r *reader) even(lengths, bins []int32) error {
	if r.model == nil {
		return nil
	}
	var costs []int64
	var tokens, rows []int32
	var of []int
	for k := range r.pool {
		if bins[k] < 0 {
			continue
		}
		units, err := r.model.Cost(cost.Sample{Tokens: int64(len(r.pool[k].tokens))})
		if err != nil {
			return err
		}
		costs, tokens, rows, of = append(costs, units), append(tokens, lengths[k]), append(rows, bins[k]), append(of, k)
	}
	if err := new(balance.Evener).EvenAside(tokens, costs, rows, int32(r.length), r.seats); err != nil {
		return err
	}
	for i, k := range of {
		bins[k] = rows[i]
	}
	return nil
}

func (r *reader) drawn() []int64 {
	tokens := make([]int64, len(r.sources))
	for _, d := range r.draws {
		tokens[d.source] += int64(len(d.tokens))
	}
	return tokens
}

func (r *reader) names() (names []string) {
	for _, s := range r.sources {
		names = append(names, s.spec.Name)
	}
	return names
}
