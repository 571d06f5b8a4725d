package dgraph

import (
	"fmt"
	"slices"
)

// Kind is the kind of a graph's nodes.
type Kind uint8

const (
	Text  Kind = iota // a node is a sample
	Image             // a node is one image of a sample
)

var kinds = []string{"text", "image"}

// String returns text or image.
func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// State is a node's progress.
type State uint8

const (
	Buffered State = iota
	Drawn
	Placed
	Assembled
	Delivered
	states // number of states
)

var stateNames = [states]string{"buffered", "drawn", "placed", "assembled", "delivered"}

// String returns the word for a state.
func (s State) String() string {
	if s < states {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Placement is a plan as edges. Columns by row have an entry for each row of the
// global batch.
type Placement struct {
	RowOf      []int32 // sample -> row, -1 if the sample waits for the next step
	Rank       []int32 // row -> DP rank
	Microbatch []int32 // row -> microbatch slot of its rank
	Position   []int32 // row -> place in the microbatch
	Encoder    []int32 // image -> bucket that encodes it, -1 if its sample waits; nil without encoders
}

// Graph is the samples or images of a step with their states and edges. See the
// package comment.
type Graph struct {
	kind   Kind
	buf    *Buffer
	state  []State // of each node
	placed Placement

	// Samples by row, ascending in each, made on first use: those of row
	// r are order[start[r]:start[r+1]].
	start, order []int32
}

// New makes a graph over a buffer. All nodes are Buffered. Columns of the buffer
// are shared, not copied.
func New(kind Kind, buf *Buffer) (*Graph, error) {
	if kind > Image {
		return nil, fmt.Errorf("dgraph: unknown kind of graph %v; valid are text and image", kind)
	}
	if err := buf.Check(); err != nil {
		return nil, err
	}
	n := buf.Len()
	if kind == Image {
		n = buf.Images()
	}
	return &Graph{kind: kind, buf: buf, state: make([]State, n)}, nil
}

// Kind returns the kind of nodes.
func (g *Graph) Kind() Kind { return g.kind }

// Buffer returns the buffer under the graph.
func (g *Graph) Buffer() *Buffer { return g.buf }

// Len returns the number of nodes.
func (g *Graph) Len() int { return len(g.state) }

// State returns the state of a node.
func (g *Graph) State(node int) State { return g.state[node] }

// Count returns the number of nodes in each state.
func (g *Graph) Count() (in [states]int) {
	for _, s := range g.state {
		in[s]++
	}
	return in
}

// Sample returns the sample that a node is, or is an image of.
func (g *Graph) Sample(node int) int {
	if g.kind == Text {
		return node
	}
	// Offsets may repeat: the sample is the last that begins at or before node.
	i, _ := slices.BinarySearch(g.buf.ImageOffsets, int32(node)+1)
	return i - 1
}

// Nodes returns the nodes of a sample: from first to before end.
func (g *Graph) Nodes(sample int) (first, end int) {
	if g.kind == Text {
		return sample, sample + 1
	}
	f, e := g.buf.ImagesOf(sample)
	return int(f), int(e)
}

// Draw marks all nodes as chosen by the mix for the step.
func (g *Graph) Draw() {
	for i, s := range g.state {
		g.state[i] = max(s, Drawn)
	}
}

// Place adds the edges of a plan: nodes that have a place are Placed, the others
// stay Drawn. Columns are shared, not copied. It is an error if a column has
// another length than its nodes, or if an edge leads to no row.
func (g *Graph) Place(p Placement) error {
	rows := len(p.Rank)
	switch {
	case len(p.RowOf) != g.buf.Len():
		return fmt.Errorf("dgraph: a plan gives %d of %d samples a row", len(p.RowOf), g.buf.Len())
	case len(p.Microbatch) != rows || len(p.Position) != rows:
		return fmt.Errorf("dgraph: a plan gives %d rows a rank, %d a microbatch and %d a position; each row has one of each",
			rows, len(p.Microbatch), len(p.Position))
	case p.Encoder != nil && len(p.Encoder) != g.buf.Images():
		return fmt.Errorf("dgraph: a plan gives %d of %d images an encoder", len(p.Encoder), g.buf.Images())
	}
	for i, row := range p.RowOf {
		if row < -1 || int(row) >= rows {
			return fmt.Errorf("dgraph: sample %d goes to row %d; rows are 0 to %d, and -1 means none", i, row, rows-1)
		}
	}
	g.placed, g.start, g.order = p, nil, nil
	g.Draw()
	to := p.RowOf
	if g.kind == Image {
		to = p.Encoder
	}
	for i, at := range to {
		if at >= 0 && g.state[i] < Placed {
			g.state[i] = Placed
		}
	}
	return nil
}

// Advance moves the nodes of the samples of a row to a state. States only go
// forward, and only placed nodes go past Placed.
func (g *Graph) Advance(row int, to State) error {
	if to >= states {
		return fmt.Errorf("dgraph: no state %v; the last state is %v", to, Delivered)
	}
	if row < 0 || row >= g.Rows() {
		return fmt.Errorf("dgraph: no row %d; rows are 0 to %d", row, g.Rows()-1)
	}
	for _, sample := range g.Samples(row) {
		first, end := g.Nodes(int(sample))
		for i := first; i < end; i++ {
			if g.state[i] >= Placed {
				g.state[i] = max(g.state[i], to)
			}
		}
	}
	return nil
}

// Rows returns the number of rows of the plan; 0 before Place.
func (g *Graph) Rows() int { return len(g.placed.Rank) }

// Samples returns the samples of a row, ascending. The slice belongs to the graph.
func (g *Graph) Samples(row int) []int32 {
	if g.start == nil {
		g.start, g.order = ByRow(g.placed.RowOf, g.Rows())
	}
	return g.order[g.start[row]:g.start[row+1]]
}

// ByRow sorts samples by row: those of row r are order[start[r]:start[r+1]],
// ascending. Samples without a row, below 0, are left out. All others are below rows.
func ByRow(rowOf []int32, rows int) (start, order []int32) {
	start = make([]int32, rows+2)
	next := start[1:] // next[r] becomes the end of row r, which is where r+1 starts
	for _, r := range rowOf {
		if r >= 0 {
			next[r+1]++
		}
	}
	for r := range rows {
		next[r+1] += next[r]
	}
	order = make([]int32, next[rows])
	for i, r := range rowOf {
		if r >= 0 {
			order[next[r]] = int32(i)
			next[r]++
		}
	}
	return start[:rows+1], order
}
