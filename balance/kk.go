package balance

import "sort"

// differencing is the largest differencing method of Karmarkar and Karp (1982)
// for many bins. A state holds up to bins sets of items. The two states whose
// sums spread the most are merged, the largest sets of one with the smallest of
// the other, until one is left: its sets are the bins.
//
// Sets that are empty are not kept, so while items are still alone a merge takes
// constant time, and only about n / bins merges go over all sets.
type differencing struct {
	next  []int32 // per item, the one after it in its set, or none
	sets  []set   // bins of them for each state, by decreasing sum
	full  []spread
	free  []int32 // states not in use
	order []costed
	moved []set
	bins  int
}

// set is a chain of items; an empty one has no head.
type set struct {
	sum        int64
	head, tail int32
}

// spread is a state that has all its sets: its largest sum less its smallest.
type spread struct {
	width int64
	state int32
}

// partition assigns items, given by decreasing cost: at[i] becomes the bin of
// items[i]. Of states with equal spread the one with empty sets comes first, then
// full ones by number, then items that are alone.
func (d *differencing) partition(s *sorter, items []costed, bins int, at []int32) {
	d.reset(len(items), bins)
	d.assign(d.run(s, items), at)
}

// blocks is partition with equal counts: it begins with full states of bins
// consecutive items each, so that a bin gets one of each. The last block may have
// empty sets.
func (d *differencing) blocks(s *sorter, items []costed, bins int, at []int32) {
	d.reset(len(items), bins)
	for first := 0; first < len(items); first += bins {
		state := d.take()
		sets := d.of(state)
		for i := range sets {
			sets[i] = set{0, none, none}
			if at := first + i; at < len(items) {
				sets[i] = alone(items, at)
			}
		}
		d.push(spread{width(sets), state})
	}
	d.assign(d.run(s, nil), at)
}

func (d *differencing) reset(n, bins int) {
	d.bins = bins
	d.next = grow(d.next, n)
	for i := range d.next {
		d.next[i] = none
	}
	states := (n+bins-1)/bins + 1 // full ones hold at least bins items, and one may be partial
	d.sets = grow(d.sets, states*bins)
	d.moved = grow(d.moved, bins)
	d.order = grow(d.order, bins)
	d.full = d.full[:0]
	d.free = grow(d.free, states)
	for i := range d.free {
		d.free[i] = int32(states - 1 - i)
	}
}

// run merges until one state is left and returns its sets. There is at most one
// partial state, one with empty sets: it spreads by its largest sum, so it is
// always among the two to merge.
func (d *differencing) run(s *sorter, items []costed) []set {
	var partial []set
	var state int32 // of partial
	for at := 0; ; {
		left := at < len(items)
		switch {
		case len(partial) == d.bins:
			d.push(spread{width(partial), state})
			partial = nil
		case len(partial) > 0 && left && (len(d.full) == 0 || items[at].cost > d.full[0].width):
			partial = append(partial, alone(items, at)) // not larger than the others
			at++
		case len(partial) > 0 && len(d.full) > 0:
			d.fold(s, partial)
			d.free = append(d.free, state)
			partial = nil
		case len(partial) > 0:
			return partial
		case left && (len(d.full) == 0 || items[at].cost > d.full[0].width):
			state = d.take()
			partial = append(d.of(state)[:0], alone(items, at))
			at++
		case left && items[at].cost > d.second():
			one := [1]set{alone(items, at)}
			d.fold(s, one[:])
			at++
		case len(d.full) > 1:
			first, second := d.pop(), d.pop()
			d.push(first)
			d.fold(s, d.of(second.state))
			d.free = append(d.free, second.state)
		case len(d.full) == 1:
			return d.of(d.full[0].state)
		default:
			return nil
		}
	}
}

func alone(items []costed, i int) set { return set{items[i].cost, int32(i), int32(i)} }

func width(sets []set) int64 { return sets[0].sum - sets[len(sets)-1].sum }

// of returns the sets of a state.
func (d *differencing) of(state int32) []set {
	return d.sets[int(state)*d.bins : int(state+1)*d.bins : int(state+1)*d.bins]
}

// take returns a state that is not in use.
func (d *differencing) take() int32 {
	state := d.free[len(d.free)-1]
	d.free = d.free[:len(d.free)-1]
	return state
}

// fewSets is the number of changed sets up to which they are inserted one by one.
const fewSets = 16

// fold merges sets into the full state that spreads the most: its smallest set
// gets the largest one.
func (d *differencing) fold(s *sorter, from []set) {
	top := &d.full[0]
	into := d.of(top.state)
	for i, add := range from {
		d.join(&into[len(into)-1-i], add)
	}
	if len(from) <= fewSets {
		for i := len(into) - len(from); i < len(into); i++ {
			place(into, i)
		}
	} else {
		d.sort(s, into)
	}
	top.width = width(into)
	d.down(0)
}

// join puts the items of add at the end of those of to.
func (d *differencing) join(to *set, add set) {
	to.sum += add.sum
	switch {
	case add.head == none:
	case to.head == none:
		to.head, to.tail = add.head, add.tail
	default:
		d.next[to.tail] = add.head
		to.tail = add.tail
	}
}

// place inserts sets[i] into those before it, behind the ones not smaller.
func place(sets []set, i int) {
	moved := sets[i]
	to := sort.Search(i, func(j int) bool { return sets[j].sum < moved.sum })
	copy(sets[to+1:i+1], sets[to:i])
	sets[to] = moved
}

// sort orders sets by decreasing sum, equal ones as they were.
func (d *differencing) sort(s *sorter, sets []set) {
	for i, x := range sets {
		d.order[i] = costed{x.sum, int32(i)}
	}
	d.order = s.sort(d.order)
	copy(d.moved, sets)
	for i, o := range d.order {
		sets[i] = d.moved[o.item]
	}
}

// assign walks the chains.
func (d *differencing) assign(sets []set, at []int32) {
	for bin, s := range sets {
		for i := s.head; i != none; i = d.next[i] {
			at[i] = int32(bin)
		}
	}
}

// The full states are a heap: the one that spreads the most is first, then the
// lowest number.

func (a spread) before(b spread) bool {
	return a.width > b.width || a.width == b.width && a.state < b.state
}

func (d *differencing) push(x spread) {
	d.full = append(d.full, x)
	for i := len(d.full) - 1; i > 0 && x.before(d.full[(i-1)/2]); i = (i - 1) / 2 {
		d.full[i], d.full[(i-1)/2] = d.full[(i-1)/2], d.full[i]
	}
}

// second is the second largest spread, or -1.
func (d *differencing) second() int64 {
	width := int64(-1)
	for _, x := range d.full[1:min(3, len(d.full))] {
		width = max(width, x.width)
	}
	return width
}

func (d *differencing) pop() spread {
	top := d.full[0]
	last := len(d.full) - 1
	d.full[0] = d.full[last]
	d.full = d.full[:last]
	d.down(0)
	return top
}

func (d *differencing) down(i int) {
	for {
		child := 2*i + 1
		if child+1 < len(d.full) && d.full[child+1].before(d.full[child]) {
			child++
		}
		if child >= len(d.full) || !d.full[child].before(d.full[i]) {
			return
		}
		d.full[i], d.full[child] = d.full[child], d.full[i]
		i = child
	}
}
