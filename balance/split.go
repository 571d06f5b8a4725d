package balance

import (
	"fmt"
	"math/bits"
	"slices"
)

// Span is the group of ranks that share one sample: First to First+Ranks-1.
// Ranks is a power of two and First a multiple of it, so that the groups of one
// size can be made once, and two groups are either disjoint or nested.
type Span struct {
	First int32
	Ranks int32
}

// SplitOptions say how samples may be split over ranks.
type SplitOptions struct {
	Ranks    int   // groups have up to the largest power of two that divides it
	Tokens   int32 // of one sample on one rank at most; 0 for any number
	Overhead int   // cost of splitting a sample, in parts per thousand of its cost
}

// maxSplitRanks and maxOverhead keep a load above a group's number in 64 bits: a
// load is at most the mean, 2^53 / ranks, and one sample's 2^41.
const (
	maxSplitRanks = 1 << 20
	maxOverhead   = 1000
)

// thetas are the parts of the mean cost of a rank, in 64ths, that a rank's piece
// of a split sample may cost: large ones split few samples, small ones leave more
// to even out with.
var thetas = [...]int64{64, 48, 32, 20, 12}

// Splitter balances samples over ranks where one sample may be more than a rank's
// share: it is split over a group of ranks by context parallelism, as in ByteScale's
// hybrid data parallelism. It holds the scratch memory of one call, reused by the
// next. The zero value is ready. A Splitter is not safe for concurrent use.
type Splitter struct {
	sorter sorter
	order  []costed   // samples by decreasing cost
	tree   tournament // of the groups of one size
	loads  []int64    // of the ranks of each group
	widths []uint8    // per sample, the binary logarithm of its group's size
	wide   []int32    // the samples that are split
	span   []Span     // the best result
	trial  []Span
}

// Split assigns each sample to the ranks that share it, so that the largest cost
// of a rank gets small. tokens (1 and more) and costs (0 and more, less than 2^40
// each and 2^52 together) say the size of each sample. A rank of a group of k gets
// a k-th of the sample's cost, with the overhead where k > 1. Split returns the
// spans, and the largest cost of a rank.
//
// A sample gets the smallest group in which its piece has o.Tokens at most and
// costs theta times the mean of a rank at most. The widest groups are placed first,
// the costliest sample before the others, each on the least loaded group of its
// size; then the rest by the same rule. A few thetas from 1 down are tried, until
// a smaller one cannot gain 0.2 %, and the best result counts.
//
// Split fails if an argument is out of range, or a sample is too long for the
// widest group. spans belong to the Splitter: they are valid until the next call.
// Time is O(n log n + thetas × n log ranks).
func (s *Splitter) Split(tokens []int32, costs []int64, o SplitOptions) (spans []Span, most int64, err error) {
	widest, total, err := o.check(tokens, costs)
	if err != nil {
		return nil, 0, err
	}
	s.order = grow(s.order, len(costs))
	for i, c := range costs {
		s.order[i] = costed{c, int32(i)}
	}
	s.order = s.sorter.sort(s.order)
	s.widths = grow(s.widths, len(costs))
	s.span, s.trial = grow(s.span, len(costs)), grow(s.trial, len(costs))
	for k, theta := range thetas {
		piece := max(1, total/int64(o.Ranks)*theta/64)
		mean := s.widen(tokens, o, widest, piece) / int64(o.Ranks)
		if k > 0 && mean+mean/512 >= most {
			break // the overhead of smaller pieces is more than they can gain
		}
		s.span, s.trial = s.trial, s.span
		if now := s.place(costs, o, widest); k == 0 || now < most {
			most = now
		} else {
			s.span, s.trial = s.trial, s.span
		}
	}
	return s.span, most, nil
}

// check returns the binary logarithm of the widest group and the sum of costs.
func (o SplitOptions) check(tokens []int32, costs []int64) (widest uint8, total int64, err error) {
	switch {
	case o.Ranks < 1 || o.Ranks > maxSplitRanks:
		return 0, 0, fmt.Errorf("%d ranks; 1 to %d are possible", o.Ranks, maxSplitRanks)
	case o.Overhead < 0 || o.Overhead > maxOverhead:
		return 0, 0, fmt.Errorf("overhead of %d parts per thousand; 0 to %d are possible", o.Overhead, maxOverhead)
	case o.Tokens < 0:
		return 0, 0, fmt.Errorf("%d tokens of a sample on one rank; 1 and more are possible, or 0 for any number", o.Tokens)
	case len(tokens) != len(costs):
		return 0, 0, fmt.Errorf("tokens of %d samples and costs of %d; each sample needs both", len(tokens), len(costs))
	}
	widest = uint8(bits.TrailingZeros(uint(o.Ranks)))
	for i, c := range costs {
		if total += c; c < 0 || c >= 1<<40 || total >= 1<<52 {
			return 0, 0, fmt.Errorf("sample %d has cost %d; a cost is 0 to 2^40-1, and all together are less than 2^52: divide all by the same number first", i, c)
		}
		if tokens[i] < 1 || o.Tokens > 0 && (int64(tokens[i])-1)>>widest >= int64(o.Tokens) {
			return 0, 0, fmt.Errorf("sample %d has %d tokens; 1 to %d are possible, as groups of %d ranks are the widest of %d and a rank holds %d: cut the sample or allow more",
				i, tokens[i], int64(o.Tokens)<<widest, 1<<widest, o.Ranks, o.Tokens)
		}
	}
	return widest, total, nil
}

// widen chooses the sizes of groups. It returns the sum of costs with overheads.
func (s *Splitter) widen(tokens []int32, o SplitOptions, widest uint8, piece int64) (total int64) {
	s.wide = s.wide[:0]
	for _, entry := range s.order {
		i, cost := entry.item, entry.cost
		w := uint8(0)
		for w < widest && (o.cost(cost, w) > piece || o.Tokens > 0 && (int64(tokens[i])-1)>>w >= int64(o.Tokens)) {
			w++
		}
		s.widths[i] = w
		if w > 0 {
			s.wide = append(s.wide, i)
		}
		total += o.cost(cost, w) << w
	}
	return total
}

// cost returns the cost of a sample on each of 1<<w ranks, rounded up.
func (o SplitOptions) cost(cost int64, w uint8) int64 {
	if w == 0 {
		return cost
	}
	cost += (cost*int64(o.Overhead) + 999) / 1000
	return (cost-1)>>w + 1
}

// place puts the samples on groups, the widest first, and returns the largest
// cost of a rank. When a size is at its turn, all ranks of a group have the same
// load, since only wider groups were loaded before.
func (s *Splitter) place(costs []int64, o SplitOptions, widest uint8) (most int64) {
	s.loads = grow(s.loads, o.Ranks>>widest)
	clear(s.loads)
	for w := widest; ; w-- {
		s.tree.build(len(s.loads), func(g int) uint64 { return uint64(s.loads[g]) })
		if w == 0 {
			break
		}
		for _, i := range s.wide {
			if s.widths[i] == w {
				s.put(i, o.cost(costs[i], w), w)
			}
		}
		s.halve()
	}
	for _, entry := range s.order {
		if s.widths[entry.item] == 0 {
			s.put(entry.item, entry.cost, 0)
		}
	}
	return slices.Max(s.loads)
}

// put puts a sample on the least loaded group of 1<<w ranks.
func (s *Splitter) put(i int32, cost int64, w uint8) {
	g := s.tree.lightest()
	s.span[i] = Span{First: int32(g) << w, Ranks: 1 << w}
	s.loads[g] += cost
	s.tree.set(uint64(s.loads[g]))
}

// halve makes two groups of each.
func (s *Splitter) halve() {
	groups := len(s.loads)
	s.loads = slices.Grow(s.loads, groups)[:2*groups]
	for g := groups - 1; g >= 0; g-- {
		s.loads[2*g], s.loads[2*g+1] = s.loads[g], s.loads[g]
	}
}
