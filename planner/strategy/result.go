package strategy

import (
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
)

// Result is the plan of a step. Columns by row have an entry for each row of the
// global batch, in the order of its numbers.
type Result struct {
	// RowOf is the row of each sample, -1 if it waits for the next step. The samples
	// of a row are in the order of the buffer. It may be what Draw returned.
	RowOf []int32

	Rank       []int32 // DP rank of each row, or the first of its ranks in the pool of DP x CP ranks
	Microbatch []int32 // slot of each row among the microbatches of its rank
	Position   []int32 // place of each row in its microbatch

	// Width is how many ranks of the pool share each row; nil if there is no pool.
	// The ranks of one row, Rank on, are aligned: Rank is a multiple of Width. Rank dp x CP
	// + cp of the pool is that of the coordinates (dp, cp).
	Width []int32

	// Microbatches is how many each DP rank has, MicrobatchSize how many rows each
	// of them has.
	Microbatches, MicrobatchSize int

	// Encoder is the bucket of Encoders that encodes each image, -1 for images of
	// samples that wait, or of sources that no graph of images has: the first rank of their row
	// encodes those. At axis world a bucket is a rank. nil if no graph of images
	// was planned.
	Encoder  []int32
	Encoders mesh.Buckets

	// BroadcastAt are the dims along which the trainer broadcasts rows; empty if the
	// strategy does not say.
	BroadcastAt []string

	// Modules sums up what was balanced: the rows, then the images, each with those of graphs of
	// some sources behind it. Empty if nothing
	// was given a cost.
	Modules []Module

	ranks int // DP ranks, or those of the pool
	tree  *mesh.Tree
	index *index
}

// Samples returns the samples of a row, as places in the buffer, ascending. The slice
// belongs to the result.
func (r *Result) Samples(row int) []int32 {
	return r.index.samples[r.index.start[row]:r.index.start[row+1]]
}

// Row returns what parts say of the samples of a row, in the order of Samples. The slice
// belongs to the result.
func (r *Result) Row(row int) []Sample { return r.index.row(int32(row)) }

// Blocks returns the blocks that the samples of the step come from. The slice belongs to the result.
func (r *Result) Blocks() []Block { return r.index.blocks }

// Ranks returns the number of ranks that rows go to: DP ranks, or, with Width, those
// of the pool.
func (r *Result) Ranks() int { return r.ranks }

// Span returns the ranks of a row: width of them, from first on.
func (r *Result) Span(row int) (first, width int) {
	if r.Width == nil {
		return int(r.Rank[row]), 1
	}
	return int(r.Rank[row]), int(r.Width[row])
}

// newResult makes a result with room for every row.
func (s *Step) newResult(widths []int32) *Result {
	n := s.in.Shape.Rows
	if widths != nil {
		n = len(widths)
	}
	columns := make([]int32, 3*n)
	return &Result{
		RowOf: s.rowOf, Width: widths, ranks: s.ranks(),
		Rank: columns[:n:n], Microbatch: columns[n : 2*n : 2*n], Position: columns[2*n:],
		Microbatches: s.microbatches, MicrobatchSize: s.in.Shape.MicrobatchSize, tree: s.in.Tree,
	}
}

// Graph returns the plan as a graph over the samples that it was made of, with all
// nodes that have a place in state Placed.
func (r *Result) Graph(kind dgraph.Kind, buf *dgraph.Buffer) (*dgraph.Graph, error) {
	g, err := dgraph.New(kind, buf)
	if err != nil {
		return nil, err
	}
	return g, g.Place(dgraph.Placement{
		RowOf: r.RowOf, Rank: r.Rank, Microbatch: r.Microbatch, Position: r.Position, Encoder: r.Encoder,
	})
}
