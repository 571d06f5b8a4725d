package strategy

import (
	"slices"

	"github.com/millrace-data/millrace/planner/cost"
)

// planImages gives the images of the graph to the buckets of their axis.
func (g *Graph) planImages() {
	s := g.s
	switch {
	case s.buf.ImageOffsets == nil:
		g.fail("plan", "the samples of this job have no images; leave the graph of images out")
		return
	case g.axis == "":
		g.fail("plan", "nothing says over what; call Distribute before Plan, as in Distribute(\"world\", 1)")
		return
	}
	if s.result.Encoder == nil {
		s.result.Encoder, s.result.Encoders = slices.Repeat([]int32{-1}, s.buf.Images()), g.buckets
	}
	if !g.imageCosts() {
		return
	}
	encoder := s.result.Encoder
	at := g.divideImages()
	if s.err != nil {
		return
	}
	for k, i := range g.scratch.items {
		encoder[i] = at[k]
	}
	if g.model != nil {
		g.sumUpImages(at)
	}
}

// imageCosts fills items and costs with the images of the graph's samples that have a row;
// costs are 0 without a model.
func (g *Graph) imageCosts() bool {
	s, x := g.s, g.scratch
	x.items, x.costs = slices.Grow(x.items[:0], s.buf.Images()), slices.Grow(x.costs[:0], s.buf.Images())
	total := int64(0)
	for i, row := range s.rowOf {
		first, end := s.buf.ImagesOf(i)
		if row < 0 || !g.of(s.buf.Source[i]) {
			continue
		}
		for image := first; image < end; image++ {
			var units int64
			if g.model != nil {
				var err error
				units, err = g.model.Cost(cost.Sample{Patches: int64(s.buf.Patches[image]), Images: 1})
				if !g.countable(i, units, err, &total) {
					return false
				}
			}
			x.items, x.costs = append(x.items, image), append(x.costs, units)
		}
	}
	return true
}

// divideImages returns the bucket of each item.
func (g *Graph) divideImages() []int32 {
	x, n := g.scratch, g.buckets.Len()
	if !g.balanced || g.balance.Level == KeepOrder {
		x.at = grow(x.at, len(x.items))
		for k, image := range x.items {
			x.at[k] = int32(int(image) % n)
		}
		return x.at
	}
	at, err := g.partition(x.costs, false)
	if err != nil {
		g.fail("balance", "dividing images over %s: %w", g.axis, err)
	}
	return at
}
