package strategy

import (
	"cmp"
	"slices"

	"github.com/millrace-data/millrace/planner/dgraph"
)

// LoaderPart is what a step needs of one source.
type LoaderPart struct {
	Source int32
	Seq    []int64 // blocks, ascending
	Start  []int32 // one entry more: the samples of block i are Index[Start[i]:Start[i+1]]
	Index  []int32 // places in the blocks, ascending in each
}

// LoaderDoPlan returns the blocks and samples of each source that a plan needs, by
// rising source: loader_do_plan. Sources without any are left out.
func LoaderDoPlan(r *Result, buf *dgraph.Buffer) []LoaderPart {
	source, sources := make([]int32, buf.Len()), int32(0)
	for i, row := range r.RowOf {
		if source[i] = -1; row >= 0 {
			source[i] = buf.Source[i]
			sources = max(sources, source[i]+1)
		}
	}
	start, order := dgraph.ByRow(source, int(sources))
	var parts []LoaderPart
	for i := range sources {
		if mine := order[start[i]:start[i+1]]; len(mine) > 0 {
			parts = append(parts, loaderPart(i, mine, buf))
		}
	}
	return parts
}

// loaderPart sorts the samples of a source, which come nearly in order.
func loaderPart(source int32, samples []int32, buf *dgraph.Buffer) LoaderPart {
	less := func(a, b int32) int {
		return cmp.Or(cmp.Compare(buf.Seq[a], buf.Seq[b]), cmp.Compare(buf.Index[a], buf.Index[b]))
	}
	if !slices.IsSortedFunc(samples, less) {
		slices.SortFunc(samples, less)
	}
	p := LoaderPart{Source: source, Index: make([]int32, len(samples))}
	for k, i := range samples {
		if k == 0 || buf.Seq[i] != p.Seq[len(p.Seq)-1] {
			p.Seq, p.Start = append(p.Seq, buf.Seq[i]), append(p.Start, int32(k))
		}
		p.Index[k] = buf.Index[i]
	}
	p.Start = append(p.Start, int32(len(samples)))
	return p
}
