package reference

import (
	"context"

	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// Manifests returns the digests of the present manifests of a job's sources.
func Manifests(ctx context.Context, st store.Store, program Program, job *jobspec.Job) ([][32]byte, error) {
	_, manifests, err := open(ctx, st, program, job, nil)
	return manifests, err
}

// open returns a job before its first step, and the digests of its sources' manifests.
func open(ctx context.Context, st store.Store, program Program, job *jobspec.Job, changes []change.Change) (r *reader, manifests [][32]byte, err error) {
	r = &reader{ctx: ctx, st: st, job: job, shared: transform.NewShared(job.Seed, program.Functions), length: job.Batch.SequenceLength, seats: job.Batch.Sequences}
	r.banned = map[ban]bool{}
	if r.changes, err = change.InForce(changes); err != nil {
		return nil, nil, err
	}
	for _, spec := range job.ResolvedSources() {
		s, err := r.open(&spec)
		if err != nil {
			return nil, nil, err
		}
		r.sources = append(r.sources, s)
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
	return r, manifests, nil
}

// open indexes a source, of the job spec or one that joins.
func (r *reader) open(spec *jobspec.Source) (*source, error) {
	chain, err := transform.Compile(*spec, r.job.LongestSample(), r.shared)
	if err != nil {
		return nil, err // it names the source
	}
	src, err := order.Index(r.ctx, r.st, spec, r.job.Seed, chain.Columns())
	if err != nil {
		return nil, err
	}
	src.Manifest.Encoding = chain.EncodingDigest()
	read := func(unit order.Unit, f func(*format.Record) error) error { return src.ReadUnit(r.ctx, r.st, unit, f) }
	worker := chain.Worker()
	apply := func(file int, rec *format.Record, f func(*transform.Sample) error) (transform.Outcome, error) {
		return worker.Apply(format.WithFile(r.ctx, file), rec, f)
	}
	return &source{Source: src, spec: spec, read: read, apply: apply, epochs: int64(r.job.Mix.Epochs)}, nil
}

func (r *reader) names() (names []string) {
	for _, s := range r.sources {
		names = append(names, s.spec.Name)
	}
	return names
}
