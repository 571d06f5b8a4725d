package balance

// limitRounds bounds how many prefixes Pack packs, once it has one that
// leaves few enough items over; halving the range comes close to the best one.
const limitRounds = 8

// Pack assigns items of the given lengths (tokens, 1 to capacity), which come from a
// stream, to at most bins bins of capacity tokens each (bins <= 0: as many as needed).
// It returns the bin of each of the first n items, [Unplaced] for those left over
// for the next call, of which there are at most leave; items from n on go back to the
// stream. Bins that hold an item have the first numbers.
//
// The first items, lengths[:first], were left over by earlier calls and must not
// starve: they never go back, and are placed before the others in the given order,
// each in the bin with the least room that it fits in, the lowest among equals. The
// others fill the remaining room by up to three rules; the result that leaves the
// fewest tokens over, in the fewest bins, is taken. A rule is only tried if those
// before it missed a bound by more than one part in 2048:
//
//   - Bins are completed one by one. A new bin begins with items by index, as long as
//     it has room for more than two of the longest, so that the items left over are the
//     last ones rather than the shortest. Then the one, two or three items that fill
//     the rest exactly are looked for (the longest first), else the two that leave
//     least, else the longest that fits is taken and the search goes on. This is the
//     minimum bin slack heuristic of Gupta and Ho (1999), with bounded searches.
//   - The same, but a bin begins with the longest item.
//   - Best fit decreasing.
//
// All items are packed. If that leaves too many over, the longest prefix that
// does not is searched for; of the prefixes tried, the one that places the most
// tokens is the result. Equal items are taken by index.
//
// Pack fails with an [*ItemError] that names the first item out of range, and
// for a capacity outside 1 to [MaxCapacity] or first outside 0 to len(lengths).
// bin belongs to the Packer: it is valid until the next call. One packing takes
// O(n log n), in practice linear, with a small bound on each search; nothing is
// allocated once the scratch has grown.
func (p *Packer) Pack(lengths []int32, first int, capacity int32, bins, leave int) (bin []int32, n int, err error) {
	if err := check(lengths, first, capacity); err != nil {
		return nil, 0, err
	}
	if bins <= 0 || bins > len(lengths) {
		bins = len(lengths)
	}
	p.sorted.reset(lengths, first, capacity)
	room := int64(bins) * int64(capacity)
	n = longestPrefix(lengths, first, leave, room, func(next int) outcome {
		p.sorted.cut(next)
		return p.packSorted(lengths[:next], first, capacity, bins, leave)
	})
	p.write()
	return p.bin, n, nil
}

// longestPrefix is the search of Pack: try packs a prefix. It returns the best prefix, which was tried last.
func longestPrefix(lengths []int32, first, leave int, room int64, try func(next int) outcome) (n int) {
	most, all := int64(-1), sum(lengths)
	longest, over := first, len(lengths)+1 // prefixes known to leave few enough, and too many
	for next, back, round := len(lengths), 0, 0; ; {
		got := try(next)
		tried := next
		if got.items > leave && next > first {
			over = next
		} else {
			if placed := all - sum(lengths[next:]) - got.left; placed > most {
				most, n = placed, next
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
			if tried != n {
				try(n)
			}
			return n
		}
	}
}

// packPrefix packs by index, and by the other rules if that leaves few enough
// items over but misses the bound. The result is in p.bin after write.
func (p *Packer) packPrefix(lengths []int32, first int, capacity int32, bins, leave int) outcome {
	p.sorted.reset(lengths, first, capacity)
	return p.packSorted(lengths, first, capacity, bins, leave)
}

// packSorted is packPrefix for items that p.sorted has.
func (p *Packer) packSorted(lengths []int32, first int, capacity int32, bins, leave int) outcome {
	best := p.pack(arrival, lengths, first, capacity, bins)
	if best.items > leave {
		return best
	}
	goal := p.goal(p.sorted.tokens+sum(lengths[:first]), capacity, bins)
	for _, r := range []rule{decreasing, bestFit} {
		if best.reaches(goal) {
			break
		}
		p.write()
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
