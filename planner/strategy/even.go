package strategy

import "slices"

// even is the level inside rows: it moves samples between rows so that these cost
// alike, and keeps the token cap. It looks at no mesh. Rows with a giant are set
// aside: the others are in other microbatches, where their ranks wait for each other.
// Where rows have several widths, these follow costs, too.
func (g *Graph) even() {
	s, x := g.s, g.scratch
	x.tokens, x.at = grow(x.tokens, len(x.items)), grow(x.at, len(x.items))
	for k, i := range x.items {
		x.tokens[k], x.at[k] = s.buf.Tokens[i], s.rowOf[i]
	}
	if m := s.in.Shape.Multiple; m > 1 {
		for k, n := range x.tokens {
			x.tokens[k] = (n + m - 1) / m * m
		}
	}
	var widths []int32
	var err error
	switch shape := s.in.Shape; {
	case g.balance.Rows != nil:
		in := RowSamples{Tokens: x.tokens, Costs: x.costs, Row: x.at, Rows: shape.Rows, Capacity: shape.SequenceLength}
		var at []int32
		if at, err = in.By(g.balance.Rows); err == nil {
			copy(x.at, at)
		}
	case shape.wide():
		widths, err = x.wide.Even(x.tokens, x.costs, x.at, shape.widths())
	default:
		x.evener.Thorough = shape.Fill > 0
		err = x.evener.Even(x.tokens, x.costs, x.at, shape.SequenceLength, shape.Rows)
	}
	if err != nil {
		g.fail("balance", "evening rows: %w", err)
		return
	}
	rowOf := slices.Clone(s.rowOf)
	for k, i := range x.items {
		rowOf[i] = x.at[k]
	}
	if widths != nil {
		broadcast := s.result.BroadcastAt
		*s.result = *s.newResult(slices.Clone(widths))
		s.result.BroadcastAt = broadcast
	}
	s.result.RowOf = rowOf
}
