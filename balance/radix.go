package balance

import (
	"cmp"
	"math/bits"
	"slices"
)

// costed is a number with its cost: an item, a bin with its load, a set.
type costed struct {
	cost int64
	item int32
}

// sorter sorts by decreasing cost, equal ones by increasing item. It keeps the
// buffers of a radix sort between calls.
type sorter struct {
	keys, spare []uint64
	other       []costed
	counts      [radixPasses]digits
}

// digits is how many keys have each digit, and then where the next one goes.
type digits [1 << radixBits]int32

const (
	radixBits   = 12  // of a digit at most: its counters stay in the first-level cache
	radixItems  = 256 // below, comparing is faster than counting
	radixPasses = 7   // for 64 bits, less 8 of an item, in digits of 8 bits
)

// sort sorts entries in place and returns them. They must come by increasing item.
//
// What is sorted is keys, half as large: how much less than the highest a cost is, above the
// item. Costs so far apart that this takes more than 64 bits are sorted with their entries.
func (s *sorter) sort(entries []costed) []costed {
	if len(entries) < radixItems {
		return sortByCost(entries)
	}
	low, high := entries[0].cost, entries[0].cost
	for _, e := range entries {
		low, high = min(low, e.cost), max(high, e.cost)
	}
	item := bits.Len32(uint32(entries[len(entries)-1].item))
	size := bits.Len64(uint64(high - low))
	few := len(entries) < 1<<radixBits
	if size+item > 64 {
		if few {
			return sortByCost(entries)
		}
		s.distributeFar(entries, high, uint(size))
		return entries
	}
	most := radixBits
	if few {
		most = 8
	}
	if passes := (size + most - 1) / most; passes > 0 {
		s.distribute(entries, high, uint(item), passes, uint((size+passes-1)/passes))
	}
	return entries
}

func sortByCost(entries []costed) []costed {
	slices.SortFunc(entries, func(a, b costed) int {
		return cmp.Or(cmp.Compare(b.cost, a.cost), cmp.Compare(a.item, b.item))
	})
	return entries
}

// distribute is a stable counting sort by each digit, the lowest one first. All digits are counted at once.
func (s *sorter) distribute(entries []costed, high int64, item uint, passes int, width uint) {
	s.keys, s.spare = grow(s.keys, len(entries)), grow(s.spare, len(entries))
	counts, mask := s.counts[:passes], uint64(1)<<width-1
	for i := range counts {
		clear(counts[i][:mask+1])
	}
	for i, e := range entries {
		key := uint64(high - e.cost)
		s.keys[i] = key<<(item&63) | uint64(e.item)
		for p := range counts {
			counts[p][key&mask&(1<<radixBits-1)]++
			key >>= width & 63
		}
	}
	at := item
	for p := range counts[1:] {
		from, to, next := s.keys, s.spare, counts[p].begin(int(mask)+1)
		for _, key := range from {
			d := &next[key>>(at&63)&mask&(1<<radixBits-1)]
			i := *d
			*d = i + 1
			to[i] = key
		}
		s.keys, s.spare = to, from
		at += width
	}
	next := counts[passes-1].begin(int(mask) + 1)
	for _, key := range s.keys {
		d := &next[key>>(at&63)&(1<<radixBits-1)]
		i := *d
		*d = i + 1
		entries[i] = costed{high - int64(key>>(item&63)), int32(key & (1<<(item&63) - 1))}
	}
}

// distributeFar is distribute for costs of this many bits, whatever that is, and moves the entries themselves.
func (s *sorter) distributeFar(entries []costed, high int64, size uint) {
	s.other = grow(s.other, len(entries))
	from, to := entries, s.other
	for at := uint(0); at < size; at += radixBits {
		counts := &s.counts[0]
		clear(counts[:])
		for _, e := range from {
			counts[uint64(high-e.cost)>>(at&63)&(1<<radixBits-1)]++
		}
		next := counts.begin(len(counts))
		for _, e := range from {
			d := &next[uint64(high-e.cost)>>(at&63)&(1<<radixBits-1)]
			to[*d] = e
			*d++
		}
		from, to = to, from
	}
	copy(entries, from) // nothing, after an even number of passes
}

// begin turns counts into where each digit begins.
func (d *digits) begin(n int) *digits {
	sum := int32(0)
	for i, count := range d[:n] {
		d[i] = sum
		sum += count
	}
	return d
}
