package strategy

import "slices"

// even is the level inside rows: it moves samples between rows so that these cost
// alike, and keeps the token cap. It looks at no mesh. Rows with a giant are set
// aside: the others are in other microbatches, where their ranks wait for each other.
func (g *Graph) even() {
	s, x := g.s, g.scratch
	x.tokens, x.at = grow(x.tokens, len(x.items)), grow(x.at, len(x.items))
	m := max(s.in.Shape.Multiple, 1)
	for k, i := range x.items {
		x.tokens[k], x.at[k] = (s.buf.Tokens[i]+m-1)/m*m, s.rowOf[i]
	}
	in := RowSamples{Tokens: x.tokens, Costs: x.costs, Row: x.at, Rows: s.in.Shape.Rows, Capacity: s.in.Shape.SequenceLength}
	if method := g.balance.Rows; method != nil {
		at, err := in.By(method)
		if err != nil {
			g.fail("balance", "moving samples between rows: %w", err)
			return
		}
		copy(x.at, at)
	} else if err := x.evener.Even(x.tokens, x.costs, x.at, s.in.Shape.SequenceLength, s.in.Shape.Rows); err != nil {
		g.fail("balance", "evening rows: %w", err)
		return
	}
	rowOf := slices.Clone(s.rowOf)
	for k, i := range x.items {
		rowOf[i] = x.at[k]
	}
	s.result.RowOf = rowOf
}
