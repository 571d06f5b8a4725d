package balance_test

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/balance"
)

// Twelve samples of very different cost go to four microbatches.
func ExampleBalancer_Partition() {
	costs := []int64{90, 4, 31, 7, 55, 12, 48, 3, 60, 22, 18, 10}
	var balancer balance.Balancer
	options := balance.Options{Bins: 4}
	bin, err := balancer.Partition(costs, options)
	if err != nil {
		fmt.Println(err)
		return
	}
	quality, err := balancer.Evaluate(costs, bin, options)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(bin)
	fmt.Println(quality)
	// Output:
	// [0 3 3 3 2 2 3 1 1 2 1 1]
	// 12 items in 4 bins: max/mean 1.0111, 0.011 above the bound
}

// zigzag deals items by decreasing cost to the bins forth and back.
type zigzag struct{}

func (zigzag) Name() string { return "zigzag" }

func (zigzag) Assign(costs []int64, bins int) ([][]int32, error) {
	order := make([]int32, len(costs))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(costs[b], costs[a]) })
	items := make([][]int32, bins)
	for i, item := range order {
		bin := i % (2 * bins)
		if bin >= bins {
			bin = 2*bins - 1 - bin
		}
		items[bin] = append(items[bin], item)
	}
	return items, nil
}

// A custom method takes three lines more than its rule. Its result is checked.
func ExampleMethod() {
	costs := []int64{90, 4, 31, 7, 55, 12, 48, 3, 60, 22, 18, 10}
	var balancer balance.Balancer
	bin, err := balancer.Partition(costs, balance.Options{Bins: 4, Custom: zigzag{}})
	fmt.Println(bin, err)
	// Output: [0 2 3 1 2 0 3 3 1 2 1 0] <nil>
}

// Eight bins become two microbatches of four ranks: alike across the ranks, and
// no rank has both heavy ones.
func ExampleBalancer_Deal() {
	loads := []int64{70, 68, 41, 40, 40, 39, 12, 11}
	const ranks = 4
	var balancer balance.Balancer
	bins, err := balancer.Deal(loads, ranks)
	if err != nil {
		fmt.Println(err)
		return
	}
	for slot := range len(loads) / ranks {
		fmt.Println(bins[slot*ranks : (slot+1)*ranks])
	}
	// Output:
	// [0 1 2 3]
	// [7 6 5 4]
}

// A pipeline begins and ends with its short microbatches.
func ExampleBitonic() {
	fmt.Println(balance.Bitonic([]int64{50, 20, 40, 10, 30}))
	// Output: [3 4 0 2 1]
}
