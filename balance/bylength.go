package balance

// byLength holds items by decreasing length, equal ones by index: a counting
// sort, as lengths are small numbers. The set of lengths finds the next one, so
// that nothing but the set is as large as the capacity to clear or to walk.
type byLength struct {
	items   []int32 // indexes
	lengths bitset  // of the items
	ends    []int32 // per length in the set, where its items end
}

// reset sorts the items from first on.
func (s *byLength) reset(lengths []int32, first int, capacity int32) {
	s.lengths.reset(capacity + 1)
	s.ends = grow(s.ends, int(capacity)+1)
	for _, n := range lengths[first:] {
		if !s.lengths.has(n) {
			s.lengths.add(n)
			s.ends[n] = 0
		}
		s.ends[n]++
	}
	sum := int32(0)
	for n := s.lengths.prev(capacity); n > 0; n = s.lengths.prev(n - 1) {
		count := s.ends[n]
		s.ends[n] = sum
		sum += count
	}
	s.items = grow(s.items, len(lengths)-first)
	for i, n := range lengths[first:] {
		s.items[s.ends[n]] = int32(first + i)
		s.ends[n]++
	}
}

// space returns the tokens of bin space that no packing of the items can go
// below: the best of Martello and Toth's L2 bounds over every k. For each k,
// items above capacity-k are alone, the others above half the capacity need a
// bin each, and those from k to half fill what the latter leave.
func (s *byLength) space(capacity int32) int64 {
	half := capacity/2 + 1
	var alone, large, largeTokens, small int64
	from := int32(0)
	for n := s.lengths.prev(capacity); n > 0; n = s.lengths.prev(n - 1) {
		items := int64(s.ends[n] - from)
		if from = s.ends[n]; n >= half {
			large += items
			largeTokens += items * int64(n)
		} else {
			small += items * int64(n)
		}
	}
	best := max(large*int64(capacity), largeTokens+small)
	longest, from := s.lengths.prev(capacity), 0
	for k := s.lengths.next(1); k > 0 && k < half; k = s.lengths.next(k + 1) {
		for ; longest >= half && longest > capacity-k; longest = s.lengths.prev(longest - 1) {
			items := int64(s.ends[longest] - from)
			from = s.ends[longest]
			alone, large, largeTokens = alone+items, large-items, largeTokens-items*int64(longest)
		}
		best = max(best, alone*int64(capacity)+max(large*int64(capacity), largeTokens+small))
		small -= int64(s.count(k)) * int64(k)
	}
	return best
}

// count returns the number of items of a length in the set.
func (s *byLength) count(n int32) int32 {
	if longer := s.lengths.next(n + 1); longer > 0 {
		return s.ends[n] - s.ends[longer]
	}
	return s.ends[n]
}
