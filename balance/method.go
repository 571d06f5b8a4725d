package balance

import (
	"fmt"
	"slices"
)

// Method is a custom way to partition, given as [Options].Custom. Its
// result is checked, and used as it is.
type Method interface {
	// Name is what errors call the method.
	Name() string
	// Assign returns the items of each bin, as indexes into costs: each item in
	// exactly one bin. It may return fewer than bins bins; the others are empty.
	// It must be a function of its arguments; costs is its own. With groups it is
	// called once for the groups, then once for each.
	Assign(costs []int64, bins int) ([][]int32, error)
}

// custom asks o.Custom and writes the bin of each item.
func custom(costs []int64, o Options, bin []int32) error {
	items, err := o.Custom.Assign(slices.Clone(costs), o.Bins)
	if err != nil {
		return fmt.Errorf("balancing %d items by method %q: %w", len(costs), o.Custom.Name(), err)
	}
	if err := Invert(items, o, bin); err != nil {
		return fmt.Errorf("balancing %d items by method %q: %w", len(costs), o.Custom.Name(), err)
	}
	return nil
}

// Invert turns the items of each bin into the bin of each item, written to bin,
// one entry for each item. It fails if there are more than o.Bins bins, an item
// is missing, doubled or out of range, or, with o.Equal, if counts differ by more than one.
func Invert(items [][]int32, o Options, bin []int32) error {
	if len(items) > o.Bins {
		return fmt.Errorf("%d bins were returned; %d were asked for", len(items), o.Bins)
	}
	for i := range bin {
		bin[i] = none
	}
	for at, in := range items {
		for _, i := range in {
			if i < 0 || int(i) >= len(bin) {
				return fmt.Errorf("bin %d has item %d; items are 0 to %d", at, i, len(bin)-1)
			}
			if bin[i] != none {
				return fmt.Errorf("item %d is in bin %d and in bin %d; an item belongs to one bin", i, bin[i], at)
			}
			bin[i] = int32(at)
		}
	}
	for i, at := range bin {
		if at == none {
			return fmt.Errorf("item %d is in no bin; each item belongs to one", i)
		}
	}
	return checkCounts(items, o, len(bin))
}

func checkCounts(items [][]int32, o Options, n int) error {
	if !o.Equal {
		return nil
	}
	for at := range o.Bins {
		have := 0
		if at < len(items) {
			have = len(items[at])
		}
		if have != n/o.Bins && have != (n+o.Bins-1)/o.Bins {
			return fmt.Errorf("bin %d has %d items; equal counts of %d items in %d bins are %d to %d",
				at, have, n, o.Bins, n/o.Bins, (n+o.Bins-1)/o.Bins)
		}
	}
	return nil
}
