package balance

// limitRounds bounds how many prefixes PackLimited packs, once it has one that
// leaves few enough items over; halving the range comes close to the best one.
const limitRounds = 8

// PackLimited is Pack for a stream of items: items that fit nowhere are left over
// for the next call, at most `leave` of them. It returns the bin of each of
// the first n items, -1 for those left over; items from n on go
// back to the stream. The first `first` items never go back.
//
// All items are packed. If that leaves too many over, the longest prefix that
// does not is searched for; of the prefixes tried, the one that places the most
// tokens is the result. Bins begin with items by index, as in the second rule of
// [Packer.Pack], so that those left over or given back are the last ones rather
// than the shortest; longest first and best fit are tried where bins stay unfilled.
func (p *Packer) PackLimited(lengths []int32, first int, capacity int32, bins, leave int) (bin []int32, n int, err error) {
	if err := check(lengths, first, capacity); err != nil {
		return nil, 0, err
	}
	if bins <= 0 || bins > len(lengths) {
		bins = len(lengths)
	}
	room := int64(bins) * int64(capacity)
	n = longestPrefix(lengths, first, leave, room, func(next int) outcome {
		return p.packPrefix(lengths[:next], first, capacity, bins, leave)
	}, func() { p.kept = append(p.kept[:0], p.bin...) })
	return p.kept, n, nil
}

// longestPrefix is the search of PackLimited: try packs a prefix, and keep saves
// the last packing. It returns the prefix that was saved last.
func longestPrefix(lengths []int32, first, leave int, room int64, try func(next int) outcome, keep func()) (n int) {
	most := int64(-1)
	longest, over := first, len(lengths)+1 // prefixes known to leave few enough, and too many
	for next, back, round := len(lengths), 0, 0; ; {
		got := try(next)
		if got.items > leave && next > first {
			over = next
		} else {
			if placed := sum(lengths[:next]) - got.left; placed > most {
				most, n = placed, next
				keep()
			}
			longest = next
		}
		if most < 0 {
			back = max(got.items-leave, 2*back)
			next = max(first, next-back)
			continue
		}
		next = (longest + over) / 2
		if round++; round == limitRounds || next == longest || most >= room-room/4096 {
			return n
		}
	}
}

// packPrefix packs by index, and by the other rules if that leaves few enough
// items over but misses the bound.
func (p *Packer) packPrefix(lengths []int32, first int, capacity int32, bins, leave int) outcome {
	p.sorted.reset(lengths, first, capacity)
	best := p.pack(arrival, lengths, first, capacity, bins)
	if best.items > leave {
		return best
	}
	goal := p.goal(lengths, capacity, bins)
	for _, r := range []rule{decreasing, bestFit} {
		if best.reaches(goal) {
			break
		}
		best = p.try(r, best, leave, lengths, first, capacity, bins)
	}
	return best
}

func sum(lengths []int32) (tokens int64) {
	for _, n := range lengths {
		tokens += int64(n)
	}
	return tokens
}
