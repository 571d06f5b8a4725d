package compile

import (
	"slices"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/mesh"
)

// Plan is the part of a core's configuration that the job spec alone says. Both is left
// to who runs it.
func Plan(job *jobspec.Job, names Registry) (plan.Config, error) {
	t := job.Topology
	tree, err := mesh.New(mesh.Sizes{DP: t.DP, CP: t.CP, PP: t.PP, TP: t.TP, VPP: t.VPP, EP: max(t.EP, 1), Order: t.Order})
	if err != nil {
		return plan.Config{}, err
	}
	place, err := names.Compile(job)
	return plan.Config{
		Strategy:       place,
		Seed:           job.Seed,
		Schedule:       Schedule(job),
		Grain:          job.Mix.Grain,
		Random:         job.Mix.Draw == "random",
		CountSamples:   job.Mix.Unit == "samples",
		Epochs:         int64(job.Mix.Epochs),
		Renormalize:    job.Mix.Exhausted == "renormalize",
		SequenceLength: int32(job.Batch.SequenceLength),
		Multiple:       int32(job.Output.DocumentMultiple),
		Rows:           job.Batch.Sequences,
		Pool:           job.Pool(),
		Widest:         int32(job.Batch.ContextSplit),
		Fill:           int32(job.Batch.Fill),
		MicrobatchSize: job.Batch.MicrobatchSize,
		Packing:        job.Batch.Packing,
		Images:         HasImages(job),
		Outliers:       outliers(job),
		Mesh:           tree,
		Ahead:          int64(job.Resources.Prefetch),
		Window:         job.Resources.Window,
	}, err
}

// HasImages says whether samples of a job have images.
func HasImages(job *jobspec.Job) bool {
	return slices.ContainsFunc(job.Sources, func(s jobspec.Source) bool { return s.Images() != nil })
}

// outliers is the queue of a job's long samples.
func outliers(job *jobspec.Job) (q balance.OutlierQueue) {
	if o := job.Batch.Outliers; o != nil {
		for _, n := range o.Above {
			q.Thresholds = append(q.Thresholds, int32(n))
		}
		q.Release, q.Patience = o.Together, int64(o.Wait)
	}
	return q
}

// Schedule is the job's mix with weights in the order of its sources.
func Schedule(job *jobspec.Job) mix.Schedule {
	var stages []mix.Stage
	for _, st := range job.Mix.Stages {
		weights := make([]float64, len(job.Sources))
		for i, s := range job.Sources {
			weights[i] = st.Weights[s.Name]
		}
		stages = append(stages, mix.Stage{From: st.From, Ramp: st.Ramp, Over: st.Over, Weights: weights})
	}
	return mix.NewSchedule(stages)
}
