package tokenize

import "slices"

// Byte-pair merging: begin with the bytes of a piece and, as long as some
// neighbours make a token, merge those of lowest rank, the leftmost of equals.
// Two implementations of that one rule, for short and for long pieces.

const (
	// shortPiece is the longest piece, in bytes, for which each merge scans all
	// pairs; longer ones use a heap.
	shortPiece = 32

	// keptPiece is the longest piece whose scratch memory is kept: up to 32
	// bytes for a byte of it, 2 MiB. Longer ones, which are rare, release it.
	keptPiece = 1 << 16
)

// merger holds the scratch memory of merging. One goroutine uses it.
type merger struct {
	v *vocab

	// For a short piece, by the start of a token.
	ids        [shortPiece]int32
	pairs      [shortPiece]uint32 // rank of the pair with the next token, and position
	prev, next [shortPiece + 1]uint8

	runes []int32 // the first tokens of a piece, if a token is at least a character
	long  chain
}

// appendMerged appends the tokens of the piece t[:n], n > 0. What follows it
// in t does not matter, but words are read faster where t continues.
func (m *merger) appendMerged(dst []int32, t []byte, n int) []int32 {
	if m.v.runes {
		m.runes = m.v.appendRunes(m.runes[:0], t[:n])
		if len(m.runes) == 0 {
			return dst
		}
		n = len(m.runes)
	}
	if n <= shortPiece {
		return m.appendShort(dst, t, n)
	}
	dst = m.long.appendLong(dst, m.v, t, n, m.runes)
	if n > keptPiece {
		m.long, m.runes = chain{}, nil
	}
	return dst
}

// pairOf is a pair's rank above the position of its left token: the least one
// is the one to merge.
func pairOf(rank int32, at int) uint32 { return uint32(rank)*shortPiece + uint32(at) }

// appendShort takes quadratic time with a very small constant. Without first
// tokens of its own, a piece begins with one for each of its n bytes.
func (m *merger) appendShort(dst []int32, t []byte, n int) []int32 {
	v, pairs := m.v, m.pairs[:n]
	if v.runes {
		m.startRunes(n)
	} else {
		m.startBytes(t, n)
	}
	for {
		best := pairs[0]
		for _, p := range pairs[1:] {
			best = min(best, p)
		}
		rank, at := int32(best/shortPiece), int(best%shortPiece)
		if rank == none {
			break
		}
		right := m.next[at]
		next := m.next[right]
		m.ids[at], m.next[at], m.prev[next] = v.result(rank), next, uint8(at)
		pairs[at], pairs[right] = pairOf(none, at), pairOf(none, int(right))
		if int(next) < n {
			pairs[at] = pairOf(v.rank(t, at, int(m.next[next]), m.ids[at], m.ids[next]), at)
		}
		if at > 0 {
			left := int(m.prev[at])
			pairs[left] = pairOf(v.rank(t, left, int(next), m.ids[left], m.ids[at]), left)
		}
	}
	for i := 0; i < n; i = int(m.next[i]) {
		dst = append(dst, m.ids[i])
	}
	return dst
}

// startBytes lays out one token a byte.
func (m *merger) startBytes(t []byte, n int) {
	v := m.v
	for i, b := range t[:n] {
		m.ids[i] = v.bytes[b]
		m.prev[i+1], m.next[i] = uint8(i), uint8(i+1)
		m.pairs[i] = pairOf(none, i)
		if i+1 < n {
			m.pairs[i] = pairOf(v.bytePairs[int(b)<<8|int(t[i+1])], i)
		}
	}
}

// startRunes lays out the piece's n first tokens.
func (m *merger) startRunes(n int) {
	for i, id := range m.runes {
		m.ids[i] = id
		m.prev[i+1], m.next[i] = uint8(i), uint8(i+1)
		m.pairs[i] = pairOf(none, i)
		if i+1 < n {
			m.pairs[i] = pairOf(m.v.pairs.rank(id, m.runes[i+1]), i)
		}
	}
}

// chain is a doubly linked list of tokens over the bytes of a piece, and a heap
// of the pairs that merge: O(n log n).
type chain struct {
	links []link
	heap  []uint64 // rank<<32 | position of the left token; smallest first
}

// link is the token that begins at a byte of the piece.
type link struct {
	id, rank   int32 // rank of the pair with the next token; of a token merged away: gone
	prev, next int32 // positions; next is the length of the piece at the end
}

// gone is the rank of a position where no token begins any more.
const gone = int32(-1)

func (c *chain) appendLong(dst []int32, v *vocab, t []byte, n int, runes []int32) []int32 {
	c.start(v, t, n, runes)
	c.run(v, t)
	for i := int32(0); int(i) < len(c.links); i = c.links[i].next {
		dst = append(dst, c.links[i].id)
	}
	return dst
}

// run merges all pairs.
func (c *chain) run(v *vocab, t []byte) {
	for len(c.heap) > 0 {
		top := c.pop()
		rank, at := int32(top>>32), int32(uint32(top))
		if c.links[at].rank == rank { // else a neighbouring merge made it stale
			c.merge(v, t, at, rank)
		}
	}
}

// start lays out one token a byte, or the first tokens of v.runes.
func (c *chain) start(v *vocab, t []byte, n int, runes []int32) {
	c.links = slices.Grow(c.links[:0], n)
	c.heap = slices.Grow(c.heap[:0], n)
	for i := range n {
		l := link{rank: none, prev: int32(i) - 1, next: int32(i) + 1}
		switch last := i+1 == n; {
		case v.runes:
			if l.id = runes[i]; !last {
				l.rank = v.pairs.rank(l.id, runes[i+1])
			}
		default:
			if l.id = v.bytes[t[i]]; !last {
				l.rank = v.bytePairs[int(t[i])<<8|int(t[i+1])]
			}
		}
		c.links = append(c.links, l)
		if l.rank != none {
			c.push(l.rank, int32(i))
		}
	}
}

// merge joins the token at position at with its right neighbour, at a rank.
func (c *chain) merge(v *vocab, t []byte, at, rank int32) {
	l := &c.links[at]
	right := &c.links[l.next]
	right.rank = gone
	l.id, l.next = v.result(rank), right.next
	if int(l.next) < len(c.links) {
		c.links[l.next].prev = at
	}
	c.rank(v, t, at)
	if l.prev >= 0 {
		c.rank(v, t, l.prev)
	}
}

// rank looks up the pair that begins at position at.
func (c *chain) rank(v *vocab, t []byte, at int32) {
	l := &c.links[at]
	l.rank = none
	if int(l.next) == len(c.links) {
		return
	}
	right := &c.links[l.next]
	if l.rank = v.rank(t, int(at), int(right.next), l.id, right.id); l.rank != none {
		c.push(l.rank, at)
	}
}

func (c *chain) push(rank, at int32) {
	entry := uint64(rank)<<32 | uint64(at)
	c.heap = append(c.heap, entry)
	h, i := c.heap, len(c.heap)-1
	for i > 0 {
		up := (i - 1) / 2
		if h[up] <= entry {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = entry
}

func (c *chain) pop() uint64 {
	top, last := c.heap[0], len(c.heap)-1
	entry := c.heap[last]
	c.heap = c.heap[:last]
	h, i := c.heap, 0
	for {
		down := 2*i + 1
		if down >= last {
			break
		}
		if down+1 < last && h[down+1] < h[down] {
			down++
		}
		if entry <= h[down] {
			break
		}
		h[i] = h[down]
		i = down
	}
	if last > 0 {
		h[i] = entry
	}
	return top
}
