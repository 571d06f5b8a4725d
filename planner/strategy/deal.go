package strategy

import (
	"cmp"
	"slices"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/planner/dgraph"
)

// deal gives each rank its microbatches: entry slot x dp + rank of the result is
// the microbatch of that rank in that slot. Slots go by falling cost, so that ranks
// which wait for each other have like work.
//
// There are two ways. One makes slots alike and then evens the ranks' sums
// (balance.Deal), the other evens the sums and then sorts each rank's microbatches
// into slots. A named method is the second way; without one both are tried, and
// the one with the smaller balance.DealtCost counts, the first of equals.
func (g *Graph) deal(loads []int64) []int32 {
	if g.balance.Custom != nil || g.balance.Method != balance.MethodAuto {
		return g.divide(loads)
	}
	alike := g.dealSlots(loads)
	if g.s.err != nil {
		return nil
	}
	even := g.divide(loads)
	if g.s.err == nil && g.stepCost(alike, loads) <= g.stepCost(even, loads) {
		return alike
	}
	return even
}

// stepCost compares ways to deal by Module.Buckets.Max and Module.Lockstep.
func (g *Graph) stepCost(order []int32, loads []int64) int64 {
	dp := g.buckets.Len()
	sums, lockstep := make([]int64, dp), int64(0)
	for slot := 0; slot < len(order); slot += dp {
		most := int64(0)
		for rank, m := range order[slot : slot+dp] {
			sums[rank] += loads[m]
			most = max(most, loads[m])
		}
		lockstep += most
	}
	return balance.DealtCost(slices.Max(sums), lockstep)
}

// divide divides microbatches over ranks by the graph's method, in groups if there
// are any, and sorts those of each rank into slots.
func (g *Graph) divide(loads []int64) []int32 {
	dp := g.buckets.Len()
	at, err := g.partition(loads, true)
	if err != nil {
		g.fail("balance", "dividing microbatches over ranks: %w", err)
		return nil
	}
	start, members := dgraph.ByRow(at, dp)
	order := make([]int32, len(loads))
	for rank := range dp {
		mine := members[start[rank]:start[rank+1]]
		slices.SortFunc(mine, func(a, b int32) int { return cmp.Or(cmp.Compare(loads[b], loads[a]), cmp.Compare(a, b)) })
		for slot, m := range mine {
			order[slot*dp+rank] = m
		}
	}
	return order
}

// dealSlots deals microbatches to slots and ranks, inside each group if there are any.
func (g *Graph) dealSlots(loads []int64) []int32 {
	x, dp, groups := g.scratch, g.buckets.Len(), g.groups()
	at := make([]int32, len(loads)) // the group of each
	if groups > 1 {
		var err error
		if at, err = g.overGroups(loads, balance.Options{Equal: true}); err != nil {
			g.fail("balance", "dividing microbatches over groups of ranks: %w", err)
			return nil
		}
	}
	start, members := dgraph.ByRow(at, groups)
	order, costs := make([]int32, len(loads)), make([]int64, 0, len(loads))
	for group := range groups {
		first, size := g.group(group)
		mine := members[start[group]:start[group+1]]
		costs = costs[:0]
		for _, m := range mine {
			costs = append(costs, loads[m])
		}
		dealt, err := x.balancer.Deal(costs, size)
		if err != nil {
			g.fail("balance", "dealing microbatches to ranks: %w", err)
			return nil
		}
		for k, m := range dealt {
			order[k/size*dp+first+k%size] = mine[m]
		}
	}
	return order
}
