package mesh

import (
	"fmt"
	"iter"

	"github.com/millrace-data/millrace/internal/fault"
)

// Tree is a mesh of trainer ranks, OVERLORD's ClientPlaceTree (arXiv 2504.09844,
// section 4.1). [New] and [Parse] make one. Read-only, safe for concurrent use.
type Tree struct {
	order   [levels]axis // innermost first
	size    [levels]int  // ranks along each axis
	stride  [levels]int  // from one rank to the next along each axis
	vpp, ep int
}

// Coordinates are a rank's indices along the axes, each from 0.
type Coordinates struct{ DP, CP, PP, TP int }

// String returns the coordinates as in "dp=0 cp=1 pp=0 tp=3".
func (c Coordinates) String() string {
	return fmt.Sprintf("dp=%d cp=%d pp=%d tp=%d", c.DP, c.CP, c.PP, c.TP)
}

func (c Coordinates) levels() [levels]int { return [levels]int{c.DP, c.CP, c.PP, c.TP} }

// Single is the mesh of one rank.
func Single() *Tree {
	t, err := New(Sizes{DP: 1, CP: 1, PP: 1, TP: 1, VPP: 1, EP: 1})
	if err != nil {
		panic(err) // a mesh of ones is valid
	}
	return t
}

// New makes the tree of a mesh. It is an error if a size is below 1 or above 2^20,
// if there are more than 2^24 ranks, if ep does not divide dp * cp, or if the order
// does not name each axis of ranks once.
func New(m Sizes) (*Tree, error) {
	order, err := parseOrder(m.Order)
	if err != nil {
		return nil, err
	}
	if err := checkSizes(m); err != nil {
		return nil, err
	}
	t := &Tree{order: order, size: [levels]int{m.DP, m.CP, m.PP, m.TP}, vpp: m.VPP, ep: m.EP}
	ranks := 1
	for _, a := range order {
		t.stride[a] = ranks
		ranks *= t.size[a]
	}
	return t, nil
}

// Sizes returns those of the tree, with the order of the four axes of ranks.
func (t *Tree) Sizes() Sizes {
	m := Sizes{DP: t.size[dp], CP: t.size[cp], PP: t.size[pp], TP: t.size[tp], VPP: t.vpp, EP: t.ep, Order: make([]string, 0, len(t.order))}
	for _, a := range t.order {
		m.Order = append(m.Order, a.String())
	}
	return m
}

// World returns the number of ranks.
func (t *Tree) World() int { return t.size[dp] * t.size[cp] * t.size[pp] * t.size[tp] }

// Equal reports whether both trees have the same sizes and the same order. The place
// of an axis with one rank counts: it decides the numbers once the axis grows.
func (t *Tree) Equal(other *Tree) bool { return *t == *other }

// Change returns the tree of the same mesh with other sizes: those of m that
// are not 0, and its order if it has one: an elastic change of the trainer.
// t is unchanged.
func (t *Tree) Change(m Sizes) (*Tree, error) {
	next := t.Sizes()
	have, want := next.sizes(), m.sizes()
	for i := range want {
		if *want[i] != 0 {
			*have[i] = *want[i]
		}
	}
	if len(m.Order) > 0 {
		next.Order = m.Order
	}
	return New(next)
}

// Coordinates returns a rank's coordinates. A rank outside 0 to World-1 is an error.
func (t *Tree) Coordinates(rank int) (Coordinates, error) {
	if err := t.checkRank(rank); err != nil {
		return Coordinates{}, err
	}
	return Coordinates{DP: t.index(rank, dp), CP: t.index(rank, cp), PP: t.index(rank, pp), TP: t.index(rank, tp)}, nil
}

// Rank returns the number of the rank at coordinates; the reverse of Coordinates.
func (t *Tree) Rank(c Coordinates) (int, error) {
	rank := 0
	for a, i := range c.levels() {
		if i < 0 || i >= t.size[a] {
			return 0, fault.Userf("no rank has %s: %s of mesh %s goes from 0 to %d", c, axis(a), t.Canonical(), t.size[a]-1)
		}
		rank += i * t.stride[a]
	}
	return rank, nil
}

func (t *Tree) checkRank(rank int) error {
	if rank < 0 || rank >= t.World() {
		return fault.Userf("no rank %d: ranks of mesh %s go from 0 to %d", rank, t.Canonical(), t.World()-1)
	}
	return nil
}

// index returns a rank's index along one axis.
func (t *Tree) index(rank int, a axis) int { return rank / t.stride[a] % t.size[a] }

// span yields base and all ranks that differ from it in the free axes only, in
// ascending order. The indices of base along those are 0.
func (t *Tree) span(base int, free [levels]bool) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range t.product(free) {
			rank, left := base, i
			for _, a := range t.order {
				if free[a] {
					rank += left % t.size[a] * t.stride[a]
					left /= t.size[a]
				}
			}
			if !yield(rank) {
				return
			}
		}
	}
}

// product returns the number of ranks along the axes of a set, taken together.
func (t *Tree) product(of [levels]bool) int {
	n := 1
	for a, in := range of {
		if in {
			n *= t.size[a]
		}
	}
	return n
}
