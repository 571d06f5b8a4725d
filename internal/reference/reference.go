// Package reference is the specification of Millrace as a program: it computes
// the batches of a job and their digest chain with plain loops.
//
// This file is a step from top to bottom; features that only some jobs use are in
// files named for them. There is no engine, network, concurrency,
// buffer limit or recovery. It calls the pure leaves (formats, transforms, the keyed
// order, the weights of a step, packing, costs, digests), which have their own
// tests, and nothing else. A strategy that a program registered is called directly,
// with the primitives it uses. The service must end with the digest of this reader,
// under any faults.
package reference

import (
	"context"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/strategy"
)

const carry = 32 // samples carried from step to step at most

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
	Skipped        []Skip // bad records that the step is the first to leave out, by source and block
	Digest         [32]byte
}

// Place is the origin of a document.
type Place struct {
	Source string
	File   string // below the common folder of the source's files
	Row    int64
	Piece  int32 // of a long record that was split
	Seq    int64 // block of the source's order, counted over epochs
	Index  int32 // place in the block
}

// Read computes the first steps of a job (fewer if the data ends before; all if
// steps is negative) with the given changes, and passes each to visit. Changes are
// in order of step. It returns the last digest.
func Read(ctx context.Context, st store.Store, job *jobspec.Job, changes []change.Change, steps int64, visit func(*Step) error) (n int64, digest [32]byte, err error) {
	return ReadWith(ctx, st, Program{}, job, changes, steps, visit)
}

// Program is what a program that runs a job has: strategies and row methods that the job may
// name, and functions that its sources may.
type Program struct {
	Strategies strategy.Set
	RowMethods strategy.RowMethods
	Functions  transform.Functions
}

// ReadWith is Read of a job that may need something of the program.
func ReadWith(ctx context.Context, st store.Store, program Program, job *jobspec.Job, changes []change.Change, steps int64, visit func(*Step) error) (n int64, digest [32]byte, err error) {
	r, manifests, err := open(ctx, st, program, job, changes)
	if err != nil {
		return 0, digest, err
	}
	r.methods = program.RowMethods
	if r.strategy, err = registeredBy(job, program.Strategies); err != nil {
		return 0, digest, err
	}
	digest = batch.Root(job.Identity(), batch.Combine(manifests))
	for n = 0; n != steps; n++ {
		s, err := r.step(n)
		if err != nil || s == nil {
			return n, digest, err
		}
		var rows [][32]byte
		for _, row := range s.Rows {
			rows = append(rows, batch.RowDigest(row))
		}
		digest = batch.Chain(digest, batch.StepDigest(n, rows))
		if s.Digest = digest; visit != nil {
			if err := visit(s); err != nil {
				return n, digest, err
			}
		}
	}
	return n, digest, nil
}

// reader is a job between two steps, and the samples of the step in progress.
type reader struct {
	ctx           context.Context
	st            store.Store
	job           *jobspec.Job
	shared        *transform.Shared
	schedule      mix.Schedule
	sources       []*source
	length, seats int     // of rows, and rows of a step
	carried       []drawn // into the next step
	changed               // changes.go
	held          []drawn // outliers.go
	strategy      *registered
	methods       strategy.RowMethods
	pool          // pool.go
}

// drawn is a sample that was drawn from a source.
type drawn struct {
	source int
	sample
	live []uint64 // shares at this draw
	step int64    // in which it was drawn
	held bool     // it waits for others of its length
}

// step makes step n, nil after the last, with the changes that are due. Skipped data
// goes into steps that are not delivered.
func (r *reader) step(n int64) (s *Step, err error) {
	skip, err := r.changeAt(n)
	var skipped []Skip
	for ; err == nil && skip >= 0; skip-- {
		var bins []int32
		if r.strategy != nil {
			bins, err = r.byStrategy(n, skip)
		} else if err = r.draw(n, skip, nil); err == nil && len(r.samples) > 0 {
			if bins, err = r.pack(); err == nil {
				err = r.even(bins)
			}
		}
		if err != nil || len(r.samples) == 0 {
			return nil, err
		}
		s = r.rows(n, bins)
		for i, source := range r.sources {
			skipped = append(skipped, source.leftOut(i)...)
		}
		s.Skipped = skipped
	}
	return s, err
}

// draw draws the samples of a step, after those held or carried: from the
// source with the largest debt, until they slightly exceed the room of the rows.
// byHand are a strategy's shares; nil: the job's.
func (r *reader) draw(n, skip int64, byHand []uint64) error {
	gone := make([]bool, len(r.sources))
	for i, s := range r.sources {
		gone[i] = s.paused || s.dropped
	}
	r.begin(n)
	shares, part := r.shares(n, 0, byHand), 0
	r.live = without(shares, gone)
	for stopped := false; ; {
		done, want := r.tokens, (r.seats+min(max(r.seats/8, 1), 2))*r.length
		if part := r.job.Batch.Fill; part > 0 && part < 1000 {
			want = max(r.seats*r.length*part/1000, 1)
		}
		if !r.job.Batch.Packing {
			done, want = len(r.samples), r.seats
		}
		if done >= want || r.waiting > carry/2 || stopped && !r.flush() {
			return nil
		}
		if stopped {
			continue
		}
		if p := r.part(done, want); p > part {
			part, shares = p, r.shares(n, p, byHand)
			r.live = without(shares, gone)
		}
		i := r.next(gone, n+skip<<32)
		if stopped = i < 0; stopped {
			continue
		}
		t, err := r.sources[i].next(r.banned)
		switch {
		case err != nil:
			return err
		case t.tokens != nil:
			r.take(drawn{source: i, sample: t, live: r.live, step: n})
		case r.job.Mix.Exhausted == "renormalize": // this source has reached its limit of epochs
			gone[i] = true
			r.live = without(shares, gone)
		default:
			stopped = true
		}
	}
}

// pack returns the row of each sample of the pool, -1 if it is carried over. Draws
// beyond the limit of carried samples return to their sources.
func (r *reader) pack() (bins []int32, err error) {
	if !r.job.Batch.Packing {
		for k := range r.samples {
			bins = append(bins, int32(k))
		}
		return bins, nil
	}
	bins, n, err := r.intoRows(r.lengths())
	for err == nil && len(r.samples) > n {
		r.giveBack()
	}
	if err != nil {
		return nil, fault.Userf("packing rows of %d tokens: %w", r.length, err)
	}
	return bins, nil
}

// rows ends a step: samples go to their rows, or are carried into the next step.
func (r *reader) rows(n int64, bins []int32) *Step {
	count := r.count(bins)
	s := &Step{Step: n, SequenceLength: r.length, Rows: make([]batch.Row, count), Places: make([][]Place, count), Shares: r.live}
	r.carried = nil
	for k, d := range r.samples {
		if bins[k] < 0 {
			r.carried = append(r.carried, d)
			continue
		}
		row := &s.Rows[bins[k]]
		d.content(row)
		row.Segments = append(row.Segments, d.tokens)
		s.Places[bins[k]] = append(s.Places[bins[k]], d.place)
	}
	r.sortCarried()
	r.held = r.held[r.flushed:]
	s.Held, s.Drawn, s.Sources = len(r.held), make([]int64, len(r.sources)), r.names()
	for _, d := range r.draws {
		s.Drawn[d.source] += int64(len(d.tokens))
	}
	for _, source := range r.sources {
		source.settle(r.job.Mix.Draw == "random")
	}
	return s
}
