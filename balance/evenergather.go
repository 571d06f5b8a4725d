package balance

// gatherWork limits the bins examined for room, per bin.
const gatherWork = 32

// gather places the deferred items although no bin has room for them: nearly full
// bins each have a little room, less than the shortest item. A bin takes
// room from others, by exchanging a long item for a shorter one, until a deferred
// item fits. It reports whether all of them did.
func (e *Evener) gather() bool {
	for _, i := range e.deferred {
		e.trial[i] = Unplaced
	}
	e.link(e.trial)
	e.entries = e.entries[:0]
	next, asked := 0, 0
	moved, two := 0, false
	for _, i := range e.deferred {
		var to *cappedBin // deferred items come longest first, and rooms largest first
		for to == nil || to.room < e.items[i].tokens {
			if next == len(e.entries) {
				two = 4*moved < len(e.entries)
				if e.byRoom(); len(e.entries) == 0 {
					return false
				}
				next, moved = 0, 0
			}
			from := e.open(e.entries[next].item)
			if next++; to == nil {
				to = from
			} else if shiftRoom(from, to, two) {
				moved++
			}
			if asked++; asked > gatherWork*len(e.bins) {
				return false
			}
		}
		to.insert(e.items[i])
	}
	e.unload(e.trial)
	return true
}

// byRoom lists the bins that have room, by decreasing room.
func (e *Evener) byRoom() {
	e.entries = e.entries[:0]
	for b := range e.bins {
		if room := e.bins[b].room; room > 0 {
			e.entries = append(e.entries, costed{int64(room), int32(b)})
		}
	}
	e.entries = e.sorter.sort(e.entries)
}

// shiftRoom gives as much of the room of a bin to another one as an exchange of
// one item for a shorter one can, or else, with two, for two that are shorter
// together. It reports whether there was any.
func shiftRoom(from, to *cappedBin, two bool) bool {
	if from == to {
		return false
	}
	best := trade{room: from.room}
	for i, j := 0, 0; i < len(to.items); i++ {
		for j < len(from.items) && from.items[j].tokens >= to.items[i].tokens-from.room {
			j++
		}
		if j > 0 {
			best.consider(i, j-1, -1, to.items[i].tokens-from.items[j-1].tokens)
		}
	}
	for i := 0; two && i < len(to.items) && best.gain == 0; i++ {
		x := to.items[i].tokens
		for j, k := 0, len(from.items)-1; j < k; {
			gain := x - from.items[j].tokens - from.items[k].tokens
			best.consider(i, j, k, gain)
			if gain > from.room {
				k--
			} else {
				j++
			}
		}
	}
	if best.gain == 0 {
		return false
	}
	x := to.remove(best.out)
	for _, at := range best.in {
		if at >= 0 {
			to.insert(from.remove(at))
		}
	}
	from.insert(x)
	return true
}

// trade is an exchange of an item for one or two that have fewer tokens.
type trade struct {
	room int32  // to give
	gain int32  // room given
	out  int    // positions
	in   [2]int // the later one first, -1 for none
}

func (t *trade) consider(out, first, second int, gain int32) {
	if gain > t.gain && gain <= t.room {
		t.gain, t.out, t.in = gain, out, [2]int{second, first}
	}
}
