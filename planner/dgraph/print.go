package dgraph

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Options control how a graph is printed. The zero value has usable defaults.
type Options struct {
	Limit   int                                // samples or images that are printed, the rest is counted; 0 is 64
	Sources []string                           // names of sources; a source without one is shown by number
	Locate  func(Ref) (file string, row int64) // where a sample was read, "" if unknown; nil if all are unknown
	Unit    func(Ref) string                   // what row counts in that file; nil: rows
}

const usualLimit = 64

func (o *Options) limit() int {
	if o.Limit <= 0 {
		return usualLimit
	}
	return o.Limit
}

func (o *Options) name(r Ref) string {
	if int(r.Source) < len(o.Sources) {
		return fmt.Sprintf("%s:%d:%d", o.Sources[r.Source], r.Seq, r.Index)
	}
	return r.String()
}

// printer writes with one check for errors at the end.
type printer struct {
	*bufio.Writer
	g    *Graph
	o    Options
	left int // nodes that may still be printed
}

func (g *Graph) printer(w io.Writer, o Options) *printer {
	return &printer{bufio.NewWriter(w), g, o, o.limit()}
}

func (p *printer) line(depth int, format string, args ...any) {
	p.WriteString(strings.Repeat("  ", depth))
	fmt.Fprintf(p, format, args...)
	p.WriteByte('\n')
}

// WriteText prints the graph as an outline: buckets, their microbatches, rows and
// samples, or buckets and the images that they encode; at the end what waits. A graph
// of more nodes than the limit is cut, with the number of those left out.
func (g *Graph) WriteText(w io.Writer, o Options) error {
	p := g.printer(w, o)
	p.line(0, "%s", g.Summary())
	switch {
	case g.kind == Image && g.placed.Encoder != nil:
		p.encoders()
	case g.kind == Text && g.Rows() > 0:
		p.ranks()
	default:
		p.nodes(0, all(g.Len()))
	}
	return p.Flush()
}

// Summary returns a line that counts the nodes of the graph by state.
func (g *Graph) Summary() string {
	noun := "samples"
	if g.kind == Image {
		noun = fmt.Sprintf("images of %d samples", g.buf.Len())
	}
	parts := []string{fmt.Sprintf("%v graph: %d %s", g.kind, g.Len(), noun)}
	if g.Rows() > 0 {
		parts = append(parts, fmt.Sprintf("%d rows", g.Rows()))
	}
	for s, n := range g.Count() {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %v", n, State(s)))
		}
	}
	if g.buf.Carried > 0 {
		parts = append(parts, plural(g.buf.Carried, "sample")+" carried")
	}
	return strings.Join(parts, ", ")
}

// ranks prints the rows by DP rank, microbatch and position.
func (p *printer) ranks() {
	at := &p.g.placed
	rows := p.g.rowsInOrder()
	rank, microbatch := int32(-1), int32(-1)
	for k, row := range rows {
		if p.left <= 0 {
			p.more(0, "row", len(rows)-k)
			break
		}
		if at.Rank[row] != rank {
			rank, microbatch = at.Rank[row], -1
			p.line(0, "rank %d", rank)
		}
		if at.Microbatch[row] != microbatch {
			microbatch = at.Microbatch[row]
			p.line(1, "microbatch %d", microbatch)
		}
		samples := p.g.Samples(int(row))
		p.line(2, "row %d: %s, %s", row, plural(len(samples), "sample"), plural(int(p.g.Tokens(int(row))), "token"))
		p.nodes(3, samples)
		if len(samples) == 0 {
			p.left-- // it still takes a line
		}
	}
	p.waiting(at.RowOf)
}

// rowsInOrder returns the rows by DP rank, microbatch and position.
func (g *Graph) rowsInOrder() []int32 {
	at, rows := &g.placed, all(g.Rows())
	slices.SortFunc(rows, func(a, b int32) int {
		return cmp.Or(cmp.Compare(at.Rank[a], at.Rank[b]), cmp.Compare(at.Microbatch[a], at.Microbatch[b]), cmp.Compare(at.Position[a], at.Position[b]))
	})
	return rows
}

// encoders prints the images by the bucket that encodes them.
func (p *printer) encoders() {
	to := p.g.placed.Encoder
	buckets := int32(0)
	for _, bucket := range to {
		buckets = max(buckets, bucket+1)
	}
	start, images := ByRow(to, int(buckets))
	for bucket := range buckets {
		mine := images[start[bucket]:start[bucket+1]]
		if len(mine) == 0 {
			continue
		}
		if p.left <= 0 {
			p.more(0, "image", len(images)-int(start[bucket]))
			break
		}
		patches := int64(0)
		for _, i := range mine {
			patches += int64(p.g.buf.Patches[i])
		}
		p.line(0, "encoder %d: %s, %s", bucket, plural(len(mine), "image"), plural(int(patches), "patch"))
		p.nodes(1, mine)
	}
	p.waiting(to)
}

// waiting prints the nodes that have no place.
func (p *printer) waiting(at []int32) {
	var none []int32
	for i, place := range at {
		if place < 0 {
			none = append(none, int32(i))
		}
	}
	if none != nil {
		p.line(0, "waiting for the next step: %s", plural(len(none), p.noun()))
		p.nodes(1, none)
	}
}

// nodes prints samples or images until the limit is reached.
func (p *printer) nodes(depth int, list []int32) {
	for k, i := range list {
		if p.left <= 0 {
			p.more(depth, p.noun(), len(list)-k)
			return
		}
		p.left--
		p.line(depth, "%s", p.node(int(i)))
	}
}

func (p *printer) more(depth int, noun string, n int) {
	p.line(depth, "... %s", plural(n, "more "+noun))
}

func (p *printer) noun() string {
	if p.g.kind == Image {
		return "image"
	}
	return "sample"
}

// node describes a node and where it came from.
func (p *printer) node(i int) string {
	l := p.g.Lineage(i)
	text := fmt.Sprintf("sample %s, %s", p.o.name(l.Ref), plural(int(p.g.buf.Tokens[l.Sample]), "token"))
	if p.g.kind == Image {
		text = fmt.Sprintf("image %d of %s, %s", l.Image, p.o.name(l.Ref), plural(int(p.g.buf.Patches[i]), "patch"))
		if l.Row >= 0 {
			text += fmt.Sprintf(", for row %d", l.Row)
		}
	}
	text += ", " + l.State.String()
	if l.Sample < p.g.buf.Carried {
		text += ", carried"
	}
	if p.o.Locate == nil {
		return text
	}
	if file, row := p.o.Locate(l.Ref); file != "" {
		unit := "row"
		if p.o.Unit != nil {
			unit = p.o.Unit(l.Ref)
		}
		text += fmt.Sprintf(", from %s %s %d", file, unit, row)
	}
	return text
}

func plural(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "ch"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// all returns 0 to n-1.
func all(n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(i)
	}
	return list
}
