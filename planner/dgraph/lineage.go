package dgraph

import (
	"cmp"
	"fmt"
	"slices"
)

// Lineage is the origin and destination of a node. Unknown numbers are -1.
type Lineage struct {
	Sample     int   // in the buffer
	Ref        Ref   // its name
	Image      int32 // number of the image in its sample
	State      State
	Row        int32 // of the global batch
	Rank       int32 // DP rank
	Microbatch int32
	Position   int32 // of the row in its microbatch
	Encoder    int32 // bucket that encodes the image
}

// Lineage returns the lineage of a node.
func (g *Graph) Lineage(node int) Lineage {
	sample := g.Sample(node)
	l := Lineage{Sample: sample, Ref: g.buf.Ref(sample), Image: -1, State: g.state[node], Row: -1, Rank: -1, Microbatch: -1, Position: -1, Encoder: -1}
	if g.kind == Image {
		first, _ := g.buf.ImagesOf(sample)
		l.Image = int32(node) - first
		if g.placed.Encoder != nil {
			l.Encoder = g.placed.Encoder[node]
		}
	}
	if g.Rows() == 0 || g.placed.RowOf[sample] < 0 {
		return l
	}
	l.Row = g.placed.RowOf[sample]
	l.Rank, l.Microbatch, l.Position = g.placed.Rank[l.Row], g.placed.Microbatch[l.Row], g.placed.Position[l.Row]
	return l
}

// String returns a line such as "2:17:3, placed: row 5, rank 1, microbatch 0, position 0".
func (l Lineage) String() string {
	text := l.Ref.String()
	if l.Image >= 0 {
		text += fmt.Sprintf(", image %d", l.Image)
	}
	text += ", " + l.State.String()
	if l.Row >= 0 {
		text += fmt.Sprintf(": row %d, rank %d, microbatch %d, position %d", l.Row, l.Rank, l.Microbatch, l.Position)
	}
	if l.Encoder >= 0 {
		text += fmt.Sprintf(", encoder %d", l.Encoder)
	}
	return text
}

// Find returns the sample with a name, in one pass over the buffer.
func (g *Graph) Find(ref Ref) (sample int, ok bool) {
	for i, index := range g.buf.Index {
		if index == ref.Index && g.buf.Seq[i] == ref.Seq && g.buf.Source[i] == ref.Source {
			return i, true
		}
	}
	return 0, false
}

// Microbatch returns the rows of a microbatch of a DP rank, by position, in one pass
// over the rows.
func (g *Graph) Microbatch(rank, microbatch int32) []int32 {
	var rows []int32
	for row := range g.placed.Rank {
		if g.placed.Rank[row] == rank && g.placed.Microbatch[row] == microbatch {
			rows = append(rows, int32(row))
		}
	}
	slices.SortFunc(rows, func(a, b int32) int { return cmp.Compare(g.placed.Position[a], g.placed.Position[b]) })
	return rows
}

// Tokens returns the tokens of all samples of a row.
func (g *Graph) Tokens(row int) int64 {
	sum := int64(0)
	for _, i := range g.Samples(row) {
		sum += int64(g.buf.Tokens[i])
	}
	return sum
}
