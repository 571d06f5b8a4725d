package balance

// byLength holds items by their length: those of one length are a chain, by falling index. The set of
// lengths finds the next one, so that nothing but the set is as large as the capacity to clear
// or to walk.
type byLength struct {
	items   int     // how many
	tokens  int64   // of all items
	of      []int32 // per index, the length: the caller's
	lengths bitset  // of the items
	count   []int32 // per length in the set, its items
	last    []int32 // per length in the set, the last of them
	prev    []int32 // per item, the one before it of its length, or none
	end     int     // of the items: those from it on were cut off
}

// reset takes the items from first on.
func (s *byLength) reset(lengths []int32, first int, capacity int32) {
	s.lengths.reset(capacity + 1)
	s.count, s.last = grow(s.count, int(capacity)+1), grow(s.last, int(capacity)+1)
	s.prev = grow(s.prev, len(lengths))
	s.items, s.tokens, s.of, s.end = 0, 0, lengths, first
	for i := first; i < len(lengths); i++ {
		n := lengths[i]
		if !s.lengths.has(n) {
			s.lengths.add(n)
			s.count[n], s.last[n] = 0, none
		}
		s.prev[i] = s.last[n]
		s.extend(n)
	}
}

// extend takes the next item, of length n, whose chain is known.
func (s *byLength) extend(n int32) {
	s.last[n] = int32(s.end)
	s.count[n]++
	s.tokens += int64(n)
	s.items++
	s.end++
}

// cut leaves the items before end, of those that reset took. They may be more or fewer than now.
func (s *byLength) cut(end int) {
	for s.end > end {
		s.end--
		n := s.of[s.end]
		s.last[n] = s.prev[s.end]
		s.tokens -= int64(n)
		s.items--
		if s.count[n]--; s.count[n] == 0 {
			s.lengths.remove(n)
		}
	}
	for s.end < end {
		n := s.of[s.end]
		if s.count[n] == 0 {
			s.lengths.add(n)
		}
		s.extend(n)
	}
}

// space returns the tokens of bin space that no packing of the items can go
// below: the best of Martello and Toth's L2 bounds over every k. For each k,
// items above capacity-k are alone, the others above half the capacity need a
// bin each, and those from k to half fill what the latter leave.
func (s *byLength) space(capacity int32) int64 {
	half := capacity/2 + 1
	var alone, large, largeTokens, small int64
	for n := s.lengths.prev(capacity); n > 0; n = s.lengths.prev(n - 1) {
		items := int64(s.count[n])
		if n >= half {
			large += items
			largeTokens += items * int64(n)
		} else {
			small += items * int64(n)
		}
	}
	best := max(large*int64(capacity), largeTokens+small)
	longest := s.lengths.prev(capacity)
	for k := s.lengths.next(1); k > 0 && k < half; k = s.lengths.next(k + 1) {
		for ; longest >= half && longest > capacity-k; longest = s.lengths.prev(longest - 1) {
			items := int64(s.count[longest])
			alone, large, largeTokens = alone+items, large-items, largeTokens-items*int64(longest)
		}
		best = max(best, alone*int64(capacity)+max(large*int64(capacity), largeTokens+small))
		small -= int64(s.count[k]) * int64(k)
	}
	return best
}
