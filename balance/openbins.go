package balance

// openBins finds the bin with the least sufficient room. Bins with room r form
// one heap by bin index, and rooms is the set of r whose heap is not empty. Full
// bins leave the structure; empty ones never enter it, because they are all
// alike: the next one to open is bin number used.
type openBins struct {
	capacity int32
	limit    int32   // bins that may be used
	used     int32   // bins opened so far
	rooms    bitset  // of 1 to capacity-1
	top      []int32 // per room, the lowest bin of its heap; defined while rooms has it
	heap     heap
}

func (o *openBins) reset(capacity int32, limit int) {
	o.capacity, o.limit, o.used = capacity, int32(limit), 0
	o.rooms.reset(capacity)
	o.top = grow(o.top, int(capacity))
	o.heap.links = grow(o.heap.links, limit)
}

// place puts an item of n tokens into its best bin and returns it, or Unplaced.
func (o *openBins) place(n int32) int32 {
	room := o.rooms.next(n)
	if room < 0 {
		if o.used == o.limit {
			return Unplaced
		}
		o.begin(n)
		return o.used - 1
	}
	b := o.pop(room)
	o.push(room-n, b)
	return b
}

// begin opens a bin, of which n tokens are taken.
func (o *openBins) begin(n int32) {
	b := o.used
	o.used++
	o.heap.links[b] = link{none, none}
	o.push(o.capacity-n, b)
}

func (o *openBins) pop(room int32) int32 {
	b := o.top[room]
	if rest := o.heap.withoutTop(b); rest != none {
		o.top[room] = rest
	} else {
		o.rooms.remove(room)
	}
	return b
}

func (o *openBins) push(room, b int32) {
	if room == 0 {
		return
	}
	if o.rooms.has(room) {
		o.top[room] = o.heap.meld(o.top[room], b)
		return
	}
	o.rooms.add(room)
	o.top[room] = b
}

// none ends the lists of a heap.
const none int32 = -1

// heap holds the links of any number of disjoint pairing heaps over bin
// indexes: push takes constant time and pop amortised logarithmic time, and the
// lowest index comes first whatever the order of the pushes.
type heap struct {
	links []link
}

type link struct {
	child   int32 // first child
	sibling int32 // next child of the same parent
}

// meld joins the heaps with the tops a and b, and returns the top of the result.
// The tops must have no siblings; the result's has none.
func (h *heap) meld(a, b int32) int32 {
	if b < a {
		a, b = b, a
	}
	h.links[b].sibling = h.links[a].child
	h.links[a].child = b
	return a
}

// withoutTop takes the top a out of its heap and returns the new top, or none.
func (h *heap) withoutTop(a int32) int32 {
	child := h.links[a].child
	h.links[a].child = none
	// Two passes, as pairing heaps need for their bound: meld children in
	// pairs from the first on, then all pairs into one.
	pairs := none
	for child != none {
		x := child
		y := h.links[x].sibling
		h.links[x].sibling = none
		child = none
		if y != none {
			child = h.links[y].sibling
			h.links[y].sibling = none
			x = h.meld(x, y)
		}
		h.links[x].sibling = pairs
		pairs = x
	}
	top := none
	for pairs != none {
		x := pairs
		pairs = h.links[x].sibling
		h.links[x].sibling = none
		if top == none {
			top = x
		} else {
			top = h.meld(top, x)
		}
	}
	return top
}
