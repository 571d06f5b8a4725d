package dgraph

import (
	"fmt"
	"io"
	"strings"
)

// WriteDOT prints the graph in the language of Graphviz: sample to image and sample
// to row are transformations, row to microbatch to rank are groups (dashed), image
// to encoder too. A graph of more nodes than the limit is cut, with the number of
// those left out.
func (g *Graph) WriteDOT(w io.Writer, o Options) error {
	p := g.printer(w, o)
	p.line(0, "digraph %v {", g.kind)
	p.line(1, "rankdir=LR; node [shape=box];")
	p.line(1, "label=%s;", quote(g.Summary()))
	d := drawer{p, map[string]bool{}}
	shown := min(g.Len(), o.limit())
	for i := range shown {
		d.node(i)
	}
	if rest := g.Len() - shown; rest > 0 {
		p.line(1, "more [label=%s, shape=plaintext];", quote("... "+plural(rest, "more "+p.noun())))
	}
	p.line(0, "}")
	return p.Flush()
}

// quote quotes a text for the language, which has two special characters.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// drawer declares each vertex and each edge once.
type drawer struct {
	*printer
	done map[string]bool
}

func (d drawer) vertex(id, label string) {
	if !d.done[id] {
		d.done[id] = true
		d.line(1, "%s [label=%s];", id, quote(label))
	}
}

func (d drawer) edge(from, to string, group bool) {
	style := ""
	if group {
		style = " [style=dashed]"
	}
	if edge := from + " -> " + to; !d.done[edge] {
		d.done[edge] = true
		d.line(1, "%s%s;", edge, style)
	}
}

func (d drawer) node(i int) {
	l := d.g.Lineage(i)
	sample := fmt.Sprintf("s%d", l.Sample)
	if d.g.kind == Text {
		d.vertex(sample, d.printer.node(i))
		d.row(sample, l)
		return
	}
	d.vertex(sample, "sample "+d.o.name(l.Ref))
	image := fmt.Sprintf("i%d", i)
	d.vertex(image, d.printer.node(i))
	d.edge(sample, image, false)
	if l.Encoder >= 0 {
		encoder := fmt.Sprintf("e%d", l.Encoder)
		d.vertex(encoder, fmt.Sprintf("encoder %d", l.Encoder))
		d.edge(image, encoder, true)
	}
}

// row draws the edges of a sample through its row.
func (d drawer) row(sample string, l Lineage) {
	if l.Row < 0 {
		return
	}
	row, batch, rank := fmt.Sprintf("r%d", l.Row), fmt.Sprintf("m%d_%d", l.Rank, l.Microbatch), fmt.Sprintf("b%d", l.Rank)
	d.vertex(row, fmt.Sprintf("row %d", l.Row))
	d.edge(sample, row, false)
	d.vertex(batch, fmt.Sprintf("microbatch %d", l.Microbatch))
	d.edge(row, batch, true)
	d.vertex(rank, fmt.Sprintf("rank %d", l.Rank))
	d.edge(batch, rank, true)
}
