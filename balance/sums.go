package balance

const (
	sumsItems = 48      // items looked at per bin
	sumsWords = 1 << 20 // items times words of a bin, above which the rule is not tried
	sumsWork  = 1 << 21 // words of sums, and items passed over, of one packing
)

// sums packs bin by bin: it takes long and short items in the proportions of the
// whole, until some of them fill the bin exactly, and
// leaves the others to the next bin. Dynamic programming over bitsets tells which:
// bit n of layer k is set if some of the first k items have n tokens together
// (Bellman's recursion for subset sums; Pisinger, 2003, packs its bits in words).
// Where a bin holds only a few items, and few sums of them fit, a rule that takes the
// longest first is left with items of one kind, which do not fill a bin.
type sums struct {
	order  []int32  // items in the order they come in
	queue  []int32  // the tail of order from the first item in no bin
	looked []int32  // items looked at for this bin
	layers []uint64 // one after the other, each of words words
	words  int
	work   int
}

// reset takes the sorted items. It returns false if there are too many.
func (s *sums) reset(sorted *byLength, capacity int32) bool {
	n := len(sorted.items)
	words := int(capacity>>6) + 1
	if n*words > sumsWords {
		return false
	}
	s.work = sumsWork
	s.layers = grow(s.layers, (min(n, sumsItems)+1)*words)
	s.order = grow(s.order, n)
	// Steps of the golden section through the sorted items, which spread evenly.
	step := int(uint64(n) * 0x9e3779b9 >> 32)
	for step++; divisor(step, n) > 1; step++ {
	}
	for k, at := 0, 0; k < n; k++ {
		s.order[k] = sorted.items[at]
		at = (at + step) % n
	}
	s.queue = s.order
	return true
}

// divisor is the greatest common one.
func divisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// next returns the first item that is in no bin, or -1.
func (s *sums) next(bin []int32) int32 {
	for len(s.queue) > 0 && bin[s.queue[0]] != Unplaced {
		s.queue = s.queue[1:]
	}
	if len(s.queue) == 0 {
		return -1
	}
	return s.queue[0]
}

// fill puts items into bin b that fill its room exactly or, of those looked at,
// best. It returns false if the work limit is reached.
func (s *sums) fill(lengths, bin []int32, room, b int32) bool {
	s.words, s.looked = int(room>>6)+1, s.looked[:0]
	last := s.layer(0)
	clear(last)
	last[0] = 1
	full := room == 0
	for _, i := range s.queue {
		if full || len(s.looked) == sumsItems {
			break
		}
		if s.work--; s.work < 0 {
			return false
		}
		if bin[i] != Unplaced || lengths[i] > room {
			continue
		}
		s.looked = append(s.looked, i)
		s.work -= s.words
		if full = has(last, room-lengths[i]); !full { // a full bin needs no further layer
			next := s.layer(len(s.looked))
			shiftOr(next, last, lengths[i])
			last = next
		}
	}
	sum := room
	for !full && !has(last, sum) {
		sum--
	}
	for k := len(s.looked) - 1; sum > 0; k-- {
		if i := s.looked[k]; !has(s.layer(k), sum) {
			bin[i] = b
			sum -= lengths[i]
		}
	}
	return true
}

func (s *sums) layer(k int) []uint64 { return s.layers[k*s.words : (k+1)*s.words] }

// has reports whether a sum is in a layer.
func has(layer []uint64, sum int32) bool { return layer[sum>>6]>>(sum&63)&1 != 0 }

// shiftOr sets to to the union of from and from shifted up by n, cut to its length.
func shiftOr(to, from []uint64, n int32) {
	at, up := int(n>>6), n&63
	down := 63 - up
	copy(to[:at], from)
	to = to[at:]
	stay := from[at:][:len(to)]
	below := uint64(0)
	for j, word := range from[:len(to)] {
		to[j] = stay[j] | word<<(up&63) | below>>1>>(down&63)
		below = word
	}
}
