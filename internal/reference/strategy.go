package reference

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// registered is the named strategy of a job, which is an input of the job like its
// files: the reference gives it the samples of a step, and takes its rows.
type registered struct {
	plan   strategy.Strategy
	tree   *mesh.Tree // the mesh
	runner strategy.Runner
}

// registeredBy returns the registered strategy of a job; nil if it has none, or one
// written in the job spec.
func registeredBy(job *jobspec.Job, set strategy.Set) (*registered, error) {
	if len(job.Strategy) == 0 || job.Strategy[0].Use == "" {
		return nil, nil
	}
	plan, err := set.Named(job.Strategy[0].Use)
	if err != nil {
		return nil, err
	}
	t := job.Topology
	tree, err := mesh.New(mesh.Sizes{DP: t.DP, CP: t.CP, PP: t.PP, TP: t.TP, VPP: t.VPP, EP: max(t.EP, 1), Order: t.Order})
	return &registered{plan: plan, tree: tree}, err
}

// remesh changes sizes of the mesh.
func (g *registered) remesh(sizes map[string]int) (err error) {
	if g != nil && sizes != nil {
		g.tree, err = g.tree.Change(mesh.Sizes{
			DP: sizes["dp"], CP: sizes["cp"], PP: sizes["pp"], TP: sizes["tp"], VPP: sizes["vpp"], EP: sizes["ep"],
		})
	}
	return err
}

var errEnd = errors.New("no such step")

// byStrategy draws a step by the registered strategy, and returns the row of
// each sample. The pool is empty after the last step.
func (r *reader) byStrategy(n, skip int64) ([]int32, error) {
	in := strategy.Input{
		Number: n, Tree: r.strategy.tree, Sources: r.names(),
		Shape: strategy.Shape{
			Rows: r.seats, SequenceLength: int32(r.length), MicrobatchSize: max(r.job.Batch.MicrobatchSize, 1),
			Packing: r.job.Batch.Packing, Multiple: int32(r.job.Output.DocumentMultiple), Pool: r.job.Pool(), Widest: int32(r.job.Batch.ContextSplit),
			Fill: int32(r.job.Batch.Fill),
		},
		Draw: func(shares []uint64) (*dgraph.Buffer, []int32, error) {
			if shares != nil {
				all, err := strategy.Shares(shares).Of(len(r.sources))
				if err != nil {
					return nil, nil, err
				}
				shares = mix.FromShares(all)
			}
			if err := r.draw(n, skip, shares); err != nil {
				return nil, nil, err
			}
			if len(r.samples) == 0 {
				return nil, nil, errEnd
			}
			bins, err := r.pack()
			return r.buffer(), slices.Clone(bins), err
		},
	}
	result, err := r.strategy.runner.Run(r.strategy.plan, in)
	switch {
	case errors.Is(err, errEnd):
		return nil, nil
	case err != nil:
		return nil, fault.As(fault.ClassOf(err), fmt.Errorf("planning step %d: %w", n, err))
	}
	r.widths = result.Width
	return result.RowOf, nil
}

// buffer returns the pool as a strategy's buffer.
func (r *reader) buffer() *dgraph.Buffer {
	b := &dgraph.Buffer{Carried: r.first}
	images := slices.ContainsFunc(r.sources[:len(r.job.Sources)], func(s *source) bool { return s.spec.Images() != nil })
	if images {
		b.ImageOffsets = []int32{0}
	}
	for _, d := range r.samples {
		b.Source, b.Seq = append(b.Source, int32(d.source)), append(b.Seq, d.place.Seq)
		b.Index, b.Tokens = append(b.Index, d.place.Index), append(b.Tokens, int32(len(d.tokens)))
		for _, x := range d.images {
			b.Patches = append(b.Patches, int32(x.H*x.W))
		}
		if images {
			b.ImageOffsets = append(b.ImageOffsets, int32(len(b.Patches)))
		}
	}
	return b
}
