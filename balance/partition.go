package balance

import (
	"fmt"
	"math/bits"
)

// Limits of a partition. Sums of costs stay far enough below the end of 64 bits
// that no bound overflows.
const (
	MaxItems       = 1 << 30
	MaxBins        = 1 << 24
	MaxTotal int64 = 1 << 62 // of all costs
)

// Options are the options of a partition. The zero value of all but Bins is
// the usual case.
type Options struct {
	// Bins is the number of bins, 1 to [MaxBins].
	Bins int
	// Equal asks for equal counts: each bin gets len(costs) / Bins items, or one
	// more in len(costs) mod Bins of them where that does not divide.
	Equal bool
	// Groups divides Bins: the items are first partitioned into this many groups,
	// then those of a group into its Bins / Groups bins, which have consecutive
	// numbers. So it goes with a tree of ranks. 0 and 1 mean no groups.
	Groups int
	// Method is the name of a method, [MethodAuto] if empty.
	Method string
	// Custom is used instead of Method if it is set.
	Custom Method
}

// The methods. Each is followed by pairwise refinement, up to the bound, or, above
// 2^14 items, to 2^-16 above it, which is far below the error of any cost model.
const (
	// MethodAuto tries the methods in the order below and keeps the best result:
	// the least largest load, then the least sum of squared loads, then the
	// earlier method. It stops at a result that reaches the bound, and leaves out
	// differencing where that takes long: above 2^22 items x bins, but with equal
	// counts, where it is cheaper, only above 2^24 items.
	MethodAuto = "auto"
	// MethodLPT is the longest processing time rule: about n log bins.
	MethodLPT = "lpt"
	// MethodKK is the largest differencing method of Karmarkar and Karp. It is
	// the better one with many items for each bin, and takes up to n x bins: above 2^30
	// items x bins, some seconds and gigabytes, it is MethodLPT.
	MethodKK = "kk"
)

// mostDifferencing is the size above which a named method does no differencing.
const mostDifferencing = 1 << 30 // items x bins

// differencingLimit is the size up to which differencing takes about as
// long as all the rest of a planning step.
const differencingLimit = 1 << 22 // items x bins

// exactItems is up to how many items refinement aims for nothing but the bound.
const exactItems = 1 << 14

// Balancer partitions items into bins so that the largest load is small. It
// holds the scratch memory of one call, reused by the next. The zero value is
// ready. A Balancer is not safe for concurrent use.
type Balancer struct {
	sorter    sorter // of items
	binSorter sorter // of bins and sets: another one, as buffers change owners
	tree      tournament
	kk        differencing
	bins      contents
	items     []costed // all items by decreasing cost
	at        []int32  // per entry of items, its bin
	count     []int32  // per bin, its items
	bin       []int32  // the result
	costs     []int64  // of the items of one group
	levels    levels
	dealing   dealing
}

// Partition assigns items of the given costs (any unit, 0 or more) to
// o.Bins bins and returns the bin of each item, 0 to o.Bins-1. It minimizes the
// largest load of a bin; a bin's load is the sum of its items' costs.
//
// The result is a function of the arguments alone. It has len(costs) entries and
// belongs to the Balancer: it is valid until the next call. Partition fails for a
// negative cost, costs that sum to more than [MaxTotal], options out of range,
// and for an error or an invalid result of a custom method.
// Only custom methods allocate once the scratch has grown.
func (b *Balancer) Partition(costs []int64, o Options) (bin []int32, err error) {
	if err := o.check(len(costs)); err != nil {
		return nil, err
	}
	if err := checkCosts(costs); err != nil {
		return nil, err
	}
	b.bin = grow(b.bin, len(costs))
	err = b.levels.partition(len(costs), o, func(members []int32, o Options, bin []int32) error {
		if members == nil {
			return b.flat(costs, o, bin)
		}
		b.costs = grow(b.costs, len(members))
		for i, item := range members {
			b.costs[i] = costs[item]
		}
		return b.flat(b.costs, o, bin)
	}, b.bin)
	if err != nil {
		return nil, err
	}
	return b.bin, nil
}

func (o *Options) check(items int) error {
	switch {
	case o.Bins < 1 || o.Bins > MaxBins:
		return fmt.Errorf("%d bins; 1 to %d are possible", o.Bins, MaxBins)
	case items > MaxItems:
		return fmt.Errorf("%d items; at most %d are possible", items, MaxItems)
	case o.Groups < 0 || o.Groups > 1 && o.Bins%o.Groups != 0:
		return fmt.Errorf("%d groups for %d bins; the number of groups must divide that of bins", o.Groups, o.Bins)
	case o.Custom != nil:
		return nil
	case o.Method != "" && o.Method != MethodAuto && o.Method != MethodLPT && o.Method != MethodKK:
		return fmt.Errorf("unknown balancing method %q; use %q, %q or %q", o.Method, MethodAuto, MethodLPT, MethodKK)
	}
	return nil
}

func checkCosts(costs []int64) error {
	total := int64(0)
	for i, c := range costs {
		if c < 0 {
			return fmt.Errorf("item %d has cost %d; a cost is 0 or more", i, c)
		}
		if c > MaxTotal-total {
			return fmt.Errorf("the costs of items 0 to %d sum to more than 2^62; divide all costs by the same number first", i)
		}
		total += c
	}
	return nil
}

// flat partitions without groups, and writes the bins of the best result.
func (b *Balancer) flat(costs []int64, o Options, bin []int32) error {
	if o.Custom != nil {
		return custom(costs, o, bin)
	}
	if o.Bins == 1 {
		clear(bin)
		return nil
	}
	b.sort(costs)
	bound := tightBound(b.items, o.Bins, o.Equal)
	target := bound
	if len(costs) > exactItems {
		target += bound >> 16
	}
	var best score
	for i, method := range o.portfolio(len(costs)) {
		b.assign(method, o)
		b.bins.reset(b.items, b.at, o.Bins)
		b.bins.refine(&b.binSorter, bound, target, o.Equal)
		s := b.bins.score()
		if i > 0 && !s.less(best) {
			continue
		}
		best = s
		b.bins.write(bin)
		if best.most <= bound {
			return nil
		}
	}
	return nil
}

// sort fills items and makes room for their bins.
func (b *Balancer) sort(costs []int64) {
	b.items = grow(b.items, len(costs))
	for i, c := range costs {
		b.items[i] = costed{c, int32(i)}
	}
	b.items = b.sorter.sort(b.items)
	b.at = grow(b.at, len(costs))
}

var (
	onlyLPT = []string{MethodLPT}
	onlyKK  = []string{MethodKK}
	both    = []string{MethodLPT, MethodKK}
)

// portfolio lists the methods to try, by size and never by time, so that a
// partition is the same on a slow machine.
func (o *Options) portfolio(items int) []string {
	switch {
	case o.Method == MethodLPT:
		return onlyLPT
	case o.Method == MethodKK && items*o.Bins <= mostDifferencing:
		return onlyKK
	case o.Method == MethodKK:
		return onlyLPT
	case o.Equal && items <= 1<<24, items*o.Bins <= differencingLimit:
		return both
	}
	return onlyLPT
}

func (b *Balancer) assign(method string, o Options) {
	switch {
	case method == MethodKK && o.Equal:
		b.kk.blocks(&b.binSorter, b.items, o.Bins, b.at)
	case method == MethodKK:
		b.kk.partition(&b.binSorter, b.items, o.Bins, b.at)
	case o.Equal:
		b.cappedLPT(b.items, o.Bins, b.at)
	default:
		b.lpt(b.items, o.Bins, b.at)
	}
}

// score orders results, the better one first: by the largest load, then by the
// sum of squared loads in 128 bits.
type score struct {
	most      int64
	high, low uint64
}

func (s score) less(t score) bool {
	if s.most != t.most {
		return s.most < t.most
	}
	return s.high < t.high || s.high == t.high && s.low < t.low
}

func (c *contents) score() (s score) {
	for _, load := range c.load {
		s.most = max(s.most, load)
		high, low := bits.Mul64(uint64(load), uint64(load))
		var carry uint64
		s.low, carry = bits.Add64(s.low, low, 0)
		s.high += high + carry // the loads sum to at most 2^62, so no overflow
	}
	return s
}

// write sets the bin of each item.
func (c *contents) write(bin []int32) {
	for i := range c.load {
		for _, it := range c.items(int32(i)) {
			bin[it.item] = int32(i)
		}
	}
}
