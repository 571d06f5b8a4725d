package strategy

import (
	"slices"

	"github.com/millrace-data/millrace/balance"
)

// groups returns how many groups balancing looks at first; 1 for none.
func (g *Graph) groups() int {
	if n := g.buckets.Groups(); n < g.buckets.Len() {
		return n
	}
	return 1
}

// group returns the buckets of a group: size of them, from first on.
func (g *Graph) group(group int) (first, size int) {
	if g.groups() == 1 {
		return 0, g.buckets.Len()
	}
	first = group * g.buckets.GroupSize()
	return first, min(g.buckets.GroupSize(), g.buckets.Len()-first)
}

// unit returns the largest number of buckets that all groups have a multiple of: the size of the
// groups, unless the last is smaller.
func (g *Graph) unit() int {
	_, a := g.group(0)
	_, b := g.group(g.groups() - 1)
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// partition divides items over the buckets of the graph by its method, with equal counts
// if asked for: in groups, if there are any. The result belongs to the scratch.
func (g *Graph) partition(costs []int64, equal bool) ([]int32, error) {
	x, n, groups := g.scratch, g.buckets.Len(), g.groups()
	o := balance.Options{Bins: n, Equal: equal, Groups: groups, Method: g.balance.Method, Custom: g.balance.Custom}
	if groups == 1 || n%g.buckets.GroupSize() == 0 {
		return x.balancer.Partition(costs, o)
	}
	o.Groups = 1
	at, err := g.overGroups(costs, o)
	if err != nil {
		return nil, err
	}
	x.members = grow(x.members, len(costs))
	for group := range groups {
		var mine []int32
		x.of = x.of[:0]
		for i, its := range at {
			if int(its) == group {
				mine, x.of = append(mine, int32(i)), append(x.of, costs[i])
			}
		}
		first, size := g.group(group)
		o.Bins = size
		inside, err := x.balancer.Partition(x.of, o)
		if err != nil {
			return nil, err
		}
		for k, i := range mine {
			x.members[i] = int32(first) + inside[k]
		}
	}
	return x.members, nil
}

// overGroups divides items over groups: each gets its part of the costs and, if counts are
// equal, of the items. Where groups differ in size, they are made of units that do not.
func (g *Graph) overGroups(costs []int64, o balance.Options) ([]int32, error) {
	unit := g.unit()
	o.Bins = g.buckets.Len() / unit
	at, err := g.scratch.balancer.Partition(costs, o)
	if err != nil {
		return nil, err
	}
	at = slices.Clone(at)
	_, size := g.group(0)
	for i := range at {
		at[i] = at[i] * int32(unit) / int32(size)
	}
	return at, nil
}
