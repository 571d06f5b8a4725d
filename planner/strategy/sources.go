package strategy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/dgraph"
)

// partGraph returns the graph of the samples of some sources.
func (s *Step) partGraph(kind dgraph.Kind, sources []string) *Graph {
	g := &Graph{s: s, kind: kind, sources: slices.Clone(sources), has: make([]bool, len(s.in.Sources))}
	for _, other := range s.parts {
		if other.kind == kind && slices.Equal(other.sources, sources) {
			return other
		}
	}
	for _, name := range sources {
		i := slices.Index(s.in.Sources, name)
		if i < 0 {
			s.fail(fault.Userf("strategy: %s: there is no source %q%s", g.title(), name, instead(name, s.in.Sources)))
			return g
		}
		if other := s.partOf(kind, int32(i)); other != nil || g.has[i] {
			s.fail(fault.Userf("strategy: %s: source %q is named twice; a sample is in one graph of %v", g.title(), name, kind))
			return g
		}
		g.has[i] = true
	}
	if s.runner.parts == nil {
		s.runner.parts = map[string]*scratch{}
	}
	if g.scratch = s.runner.parts[g.title()]; g.scratch == nil {
		g.scratch = &scratch{}
		s.runner.parts[g.title()] = g.scratch
	}
	s.parts = append(s.parts, g)
	return g
}

// title names the graph in messages and reports: text, or text of web, code.
func (g *Graph) title() string {
	if g.sources == nil {
		return g.kind.String()
	}
	return fmt.Sprintf("%v of %s", g.kind, strings.Join(g.sources, ", "))
}

// of says whether a source's samples are in the graph.
func (g *Graph) of(source int32) bool {
	if g.sources == nil {
		return g.s.partOf(g.kind, source) == nil
	}
	return int(source) < len(g.has) && g.has[source]
}

// partOf returns the graph of a kind that names a source; nil if none does.
func (s *Step) partOf(kind dgraph.Kind, source int32) *Graph {
	for _, g := range s.parts {
		if g.kind == kind && g.of(source) {
			return g
		}
	}
	return nil
}

// all returns the graphs of a kind: that of all other sources, then those of some.
func (s *Step) all(kind dgraph.Kind) (graphs []*Graph) {
	if g := s.graphs[kind]; g != nil {
		graphs = append(graphs, g)
	}
	for _, g := range s.parts {
		if g.kind == kind {
			graphs = append(graphs, g)
		}
	}
	return graphs
}

// imageAxis returns the axis that images are distributed at, "" if that was not said.
func (s *Step) imageAxis() string {
	for _, g := range s.all(dgraph.Image) {
		if g.axis != "" {
			return g.axis
		}
	}
	return ""
}

// planGraphs plans the graphs that have no plan yet. Rows and images depend on the
// samples alone, so they are planned as Input.Both says, but for a method of one's own
// that both would call.
func (s *Step) planGraphs() {
	rows, images := s.all(dgraph.Text), s.all(dgraph.Image)
	planned := func(g *Graph) bool { return g.planned }
	own := func(g *Graph) bool { return g.balance.Custom != nil }
	all := slices.Concat(rows, images)
	if len(rows) == 0 || len(images) == 0 || slices.ContainsFunc(all, planned) || slices.ContainsFunc(rows, own) && slices.ContainsFunc(images, own) {
		s.planRows(rows)
		s.planImages(images)
		return
	}
	beside := *s // with an error of its own
	for _, g := range images {
		g.s = &beside
	}
	var panicked any
	s.in.both(func() { s.planRows(rows) }, func() {
		defer func() {
			if r := recover(); r != nil {
				panicked = where(r)
			}
		}()
		beside.planImages(images)
	})
	if panicked != nil {
		panic(panicked) // where who called the strategy can recover
	}
	for _, g := range images {
		g.s = s
	}
	if beside.err != nil {
		s.fail(beside.err)
	}
}

// planRows plans the graph of text. Those of some sources say what their samples cost in
// its rows.
func (s *Step) planRows(graphs []*Graph) {
	for _, g := range graphs {
		switch {
		case s.err != nil || g.planned:
		case g.sources == nil:
			g.planRows()
		case s.graphs[dgraph.Text] == nil || s.graphs[dgraph.Text].model == nil:
			g.fail("plan", "it says what samples of some sources cost, and the graph of text does not for the others; call Cost on it")
		}
		g.planned = true
	}
}

// planImages plans the graphs of images, one after the other: the encoder of some sources'
// images is a module of its own, whose work is even over ranks by itself.
func (s *Step) planImages(graphs []*Graph) {
	for _, g := range graphs {
		if s.err == nil && !g.planned {
			g.planImages()
		}
		g.planned = true
	}
}
