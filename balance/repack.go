package balance

import "slices"

const (
	repackItems = 1 << 16 // items packed again, all times together
	repackScan  = 4       // items or bins scanned count as one packed
	repackGap   = 4096    // one bin in 4096 above the bound is close enough
	leastShare  = 8       // bins packed again, for each that is too many
	mostShare   = 128
	apart       = -1 // the new number of a bin that is packed again
)

// repacker packs the emptiest bins of a packing again.
type repacker struct {
	packer  *Packer
	sorter  sorter
	rooms   []costed // bins by decreasing room
	number  []int32  // per bin, its new number or apart
	taken   []int32  // new numbers of those packed again
	items   []int32  // of these bins
	lengths []int32  // of items
}

// repack packs the emptiest bins of a complete packing again, in turn few and many
// of them, and keeps a result that takes no more bins: where lengths are coarse, a
// second try often fits better. It stops near the bins needed, or after a number of
// items packed. It returns the bins used.
func (r *repacker) repack(lengths, bin []int32, capacity int32, used, need int) int {
	if r.packer == nil {
		r.packer = new(Packer)
	}
	work, reversed := repackItems, false // every other time the items are packed in reverse
	for share := leastShare; used > need+need/repackGap; share *= 2 {
		count := (used - need) * share
		if count > used/2 || share > mostShare {
			if share == leastShare {
				break
			}
			share, reversed = leastShare/2, !reversed
			continue
		}
		r.takeApart(lengths, bin, capacity, used, count)
		if reversed {
			slices.Reverse(r.items)
			slices.Reverse(r.lengths)
		}
		if work -= len(r.items) + (len(bin)+used)/repackScan; work < 0 {
			break
		}
		if got := r.packer.portfolio(quickRules, r.lengths, 0, capacity, count); got.items == 0 {
			used -= count - got.used
			r.putBack(bin, got.used)
		}
	}
	return used
}

// takeApart lists the items of the emptiest bins.
func (r *repacker) takeApart(lengths, bin []int32, capacity int32, used, count int) {
	r.rooms, r.number = grow(r.rooms, used), grow(r.number, used)
	for b := range r.rooms {
		r.rooms[b], r.number[b] = costed{int64(capacity), int32(b)}, 0
	}
	for i, b := range bin {
		r.rooms[b].cost -= int64(lengths[i])
	}
	r.rooms = r.sorter.sort(r.rooms)
	for _, room := range r.rooms[:count] {
		r.number[room.item] = apart
	}
	r.items, r.lengths = r.items[:0], r.lengths[:0]
	for i, b := range bin {
		if r.number[b] == apart {
			r.items, r.lengths = append(r.items, int32(i)), append(r.lengths, lengths[i])
		}
	}
}

// putBack renumbers the bins: those packed again take the first numbers of
// the bins that were taken apart.
func (r *repacker) putBack(bin []int32, used int) {
	r.taken = r.taken[:0]
	next := int32(0)
	for b, n := range r.number {
		if n != apart {
			r.number[b] = next
		} else if len(r.taken) < used {
			r.taken = append(r.taken, next)
		} else {
			continue
		}
		next++
	}
	for i, b := range bin {
		bin[i] = r.number[b]
	}
	for k, i := range r.items {
		bin[i] = r.taken[r.packer.bin[k]]
	}
}
