package preview

import (
	"context"
	"io"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/planner/dgraph"
)

// WriteGraph prints the graph of the whole step, of its rows or of its images, with
// at most n nodes (0: 64): in the DOT language if dot is set, else as text.
func (x *Explanation) WriteGraph(ctx context.Context, w io.Writer, kind dgraph.Kind, limit int, dot bool) error {
	if kind == dgraph.Image && x.step.Placed.Encoder == nil {
		return fault.Userf("step %d has no graph of images: the job's strategy plans rows only", x.Step)
	}
	g, err := x.step.Placed.Graph(kind, x.step.Buffer)
	if err != nil {
		return err
	}
	opts := dgraph.Options{Limit: limit, Sources: x.job.Sources(), Locate: func(r dgraph.Ref) (string, int64) {
		p, err := x.job.Place(ctx, plan.Ref{Source: r.Source, Seq: r.Seq, Index: r.Index})
		if err != nil {
			return "", 0
		}
		return x.job.sources[r.Source].Manifest.Name(p.File), p.Row
	}, Unit: func(r dgraph.Ref) string { return unitOf(x.job.sources[r.Source].Format) }}
	if dot {
		return g.WriteDOT(w, opts)
	}
	return g.WriteText(w, opts)
}
