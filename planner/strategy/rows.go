package strategy

import (
	"slices"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
)

// scratch is memory that one step leaves to the next.
type scratch struct {
	balancer balance.Balancer
	evener   balance.Evener
	wide     balance.WideEvener
	tiler    balance.Tiler
	items    []int32 // samples or images that have a place
	costs    []int64 // of items
	tokens   []int32 // of items
	at       []int32 // of items: where they are
	known    []int64 // cost of a sample without images, by its tokens; unknown until it is asked for
	rows     []int64 // cost of each row
	loads    []int64 // cost of each microbatch
	of       []int64 // costs of the items of a group
	members  []int32 // of items: their buckets, where groups differ in size
}

// planRows places the rows of the step.
func (g *Graph) planRows() {
	s, level := g.s, g.balance.Level
	if !g.balanced {
		level = KeepOrder
	}
	s.result.BroadcastAt = g.broadcast
	if g.model != nil {
		g.sampleCosts()
	}
	if s.err == nil && (level == Intra || level == Interleaved) {
		g.even()
	}
	if s.err != nil {
		return
	}
	if g.model != nil {
		g.rowCosts()
	}
	switch {
	case g.raw: // the rows have their places
	case level == Inter || level == Interleaved:
		if s.in.Shape.wide() {
			s.tile(g.scratch.rows)
			break
		}
		g.inter()
	default:
		s.inOrder()
	}
	if s.err == nil && g.model != nil {
		g.sumUp(g.scratch.rows)
		g.sumUpParts()
	}
}

// sampleCosts fills items and costs with the samples that have a row.
func (g *Graph) sampleCosts() {
	s, x, n := g.s, g.scratch, g.s.buf.Len()
	x.items, x.costs = grow(x.items, n), grow(x.costs, n)
	for _, part := range s.all(dgraph.Text) {
		part.forget()
	}
	var known []int64 // of all samples, by length
	if len(s.parts) == 0 {
		known = x.known
	}
	total, k := int64(0), 0
	for i, row := range s.rowOf {
		if row < 0 {
			continue
		}
		units := int64(unknown)
		if tokens := uint32(s.buf.Tokens[i]); int(tokens) < len(known) {
			units = known[tokens]
		}
		if units == unknown || units > balance.MaxTotal-total {
			var ok bool
			if units, ok = g.costAfter(total, i); !ok {
				return
			}
		}
		x.items[k], x.costs[k] = int32(i), units
		total += units
		k++
	}
	x.items, x.costs = x.items[:k], x.costs[:k]
}

// costAfter returns the cost of a sample, by the graph that has it. If it cannot be added to the total of those before it,
// the step fails.
func (g *Graph) costAfter(total int64, i int) (units int64, ok bool) {
	of := g
	if len(g.s.parts) > 0 {
		of = g.s.costGraph(g.s.buf.Source[i], g)
	}
	units, err := of.costOf(i)
	return units, of.countable(i, units, err, &total)
}

// costGraph returns the graph that says what samples of a source cost: one that names it, else
// that of text.
func (s *Step) costGraph(source int32, text *Graph) *Graph {
	if part := s.partOf(dgraph.Text, source); part != nil && part.model != nil {
		return part
	}
	return text
}

// unknown is not a cost.
const unknown = -1

// forget makes room to know the cost of each length, where samples have no images and
// are more than there are lengths.
func (g *Graph) forget() {
	x, lengths := g.scratch, int(g.s.in.Shape.SequenceLength)+1
	if x.known = x.known[:0]; g.s.buf.ImageOffsets != nil || lengths > g.s.buf.Len() {
		return
	}
	x.known = grow(x.known, lengths)
	for i := range x.known {
		x.known[i] = unknown
	}
}

// costOf returns the cost of a sample.
func (g *Graph) costOf(i int) (units int64, err error) {
	tokens, known := g.s.buf.Tokens[i], g.scratch.known
	if int(tokens) < len(known) && known[tokens] != unknown {
		return known[tokens], nil
	}
	sample := cost.Sample{Tokens: int64(tokens)}
	if first, end := g.s.buf.ImagesOf(i); first < end {
		sample.Patches, sample.Images = g.s.buf.PatchesOf(i), int64(end-first)
	}
	units, err = g.model.Cost(sample)
	if int(tokens) < len(known) && err == nil {
		known[tokens] = units
	}
	return units, err
}

// countable adds the cost of a sample to the total, and fails the step if it
// cannot be.
func (g *Graph) countable(sample int, units int64, err error, total *int64) bool {
	switch {
	case err != nil:
		g.fail("cost", "sample %v: %w", g.s.buf.Ref(sample), err)
	case units < 0:
		g.fail("cost", "the model %v gives sample %v the cost %d; a cost is 0 or more", g.model, g.s.buf.Ref(sample), units)
	case units > balance.MaxTotal-*total:
		g.fail("cost", "by the model %v the step costs more than 2^62 units; divide its costs by the same number", g.model)
	default:
		*total += units
		return true
	}
	return false
}

// rowCosts fills rows with the cost of each row.
func (g *Graph) rowCosts() {
	s, x := g.s, g.scratch
	x.rows = grow(x.rows, len(s.result.Rank))
	clear(x.rows)
	for k, i := range x.items {
		x.rows[s.result.RowOf[i]] += x.costs[k]
	}
}

// inter is the level between rows: it makes microbatches of rows and gives them to
// slots of DP ranks, in equal numbers.
func (g *Graph) inter() {
	s := g.s
	batchOf, loads := g.makeMicrobatches()
	if s.err != nil {
		return
	}
	order := g.deal(loads) // slot x dp + rank -> microbatch
	if s.err != nil {
		return
	}
	dp := g.buckets.Len()
	place := make([]int32, len(order)) // microbatch -> slot x dp + rank
	for k, slot := range g.slotOrder(order, loads) {
		for rank := range dp {
			place[order[int(slot)*dp+rank]] = int32(k*dp + rank)
		}
	}
	for row, m := range batchOf {
		s.result.Rank[row], s.result.Microbatch[row] = place[m]%int32(dp), place[m]/int32(dp)
	}
}

// makeMicrobatches groups rows, with equal counts, into as many microbatches as all
// ranks have slots, and returns that of each row and their costs. Rows of one
// are in the order of their numbers. The slices belong to the scratch.
func (g *Graph) makeMicrobatches() (batchOf []int32, loads []int64) {
	s, x := g.s, g.scratch
	batchOf = s.result.Microbatch // until the slots are known
	if s.in.Shape.MicrobatchSize == 1 {
		for row := range batchOf {
			batchOf[row], s.result.Position[row] = int32(row), 0
		}
		return batchOf, x.rows
	}
	n := g.buckets.Len() * s.microbatches
	at, err := x.balancer.Partition(x.rows, balance.Options{Bins: n, Equal: true, Method: g.balance.Method, Custom: g.balance.Custom})
	if err != nil {
		g.fail("balance", "making microbatches of %d rows: %w", s.in.Shape.MicrobatchSize, err)
		return nil, nil
	}
	copy(batchOf, at)
	x.loads, x.at = grow(x.loads, n), grow(x.at, n)
	clear(x.loads)
	clear(x.at)
	for row, m := range batchOf {
		x.loads[m] += x.rows[row]
		s.result.Position[row] = x.at[m]
		x.at[m]++
	}
	return batchOf, x.loads
}

// slotOrder returns the slots in the order in which they run: with a pipeline
// small ones at both ends (nothing overlaps with the first and last), else the
// largest first.
func (g *Graph) slotOrder(order []int32, loads []int64) []int32 {
	dp, sums := g.buckets.Len(), make([]int64, g.s.microbatches)
	for k, m := range order {
		sums[k/dp] += loads[m]
	}
	if g.s.in.Tree.Sizes().PP > 1 {
		return balance.Bitonic(sums)
	}
	slots := make([]int32, len(sums))
	for i := range slots {
		slots[i] = int32(i)
	}
	return slots
}

// grow returns s with length n, of undefined content.
func grow[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }
