package constructor

import (
	"fmt"
	"sync"
	"weak"

	"github.com/millrace-data/millrace/internal/constructor/deliver"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/hostmem"
)

// The memory that ranks map is divided into rings: one for each rank and join, or for all TP ranks that get the
// same bytes. A ring has slots of one size, and a body lies in one slot. It is written when a rank wants it and
// read by every rank of the ring that wants the same step; a slot is written again when each of them has said
// that it is done with it. What a rank that left had not given back, it may be reading: then the whole ring is
// left to the kernel, which keeps it for as long as anyone maps it, and another one is made.

const (
	// moreSlots are those beside the steps that a rank reads ahead: that which the trainer works on, that which
	// it has just left and that which is written.
	moreSlots = 3
	// mostSlots bounds a ring. A rank that reads further ahead has steps in its own memory.
	mostSlots = 32
	// slotRoom is what a slot has beyond the largest body so far, as a fraction of it, so that one that is a
	// little larger fits; slotStep is what sizes are multiples of.
	slotRoom = 4
	slotStep = 64 << 10
)

// sharer is what ranks of one ring have in common.
type sharer struct {
	rank   deliver.Rank // with TP 0, if all TP ranks get the same bytes
	copies bool         // as DeliverRequest has it
}

// sharers are the ranks of a ring.
type sharers struct {
	c     *Constructor
	key   sharer
	lines int // guarded by the lock of sharing

	mu     sync.Mutex // held while a body is assembled: others of the group that want it wait for it
	ring   *ring      // nil: none
	next   coming     // that for larger bodies, or the first
	slots  int        // that are wanted
	most   int        // bytes of the largest body so far
	broken bool       // no memory is to be had
	lack   string     // why no ring holds bodies as large as they are, as long as nothing else changes; "": one does, or is to come
	clock  uint64
}

// coming is a ring whose memory is set aside, while steps that are there have it still.
type coming struct {
	slots, size int
	more        int64 // bytes, than the one before
}

// ring is memory of a group. Its group's lock guards it.
type ring struct {
	number uint64
	memory *hostmem.Memory // nil once the ring is given up
	size   int             // of a slot
	slots  []slotOf
}

// slotOf is a slot, and the body that lies in it.
type slotOf struct {
	of      weak.Pointer[deliver.Step]
	head    []byte // its table
	body    int    // bytes
	readers int
	used    uint64 // the group's clock, when it was last given out
}

// part is a rank's part of a step: in a slot, or in memory of its own.
type part struct {
	head  []byte
	size  int // of the body
	ring  *ring
	slot  int
	place hostmem.Place
	fd    int // of the ring for a rank that does not have it yet, which closes it; -1: it has

	body []byte // if ring is nil
	why  string // it is, if that will be so with the next one; else ""
	done func() // gives body back
}

// take assembles a rank's part of a step, unless that is there. has is the number of the ring that the rank has.
func (g *sharers) take(got *deliver.Step, r deliver.Rank, has uint64) (*part, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.renew()
	of := weak.Make(got)
	i, there := g.find(of)
	if i < 0 {
		return g.apart(got, r, g.lack)
	}
	if !there {
		if larger, err := g.write(i, got, r); err != nil || larger != nil {
			return larger, err
		}
	}
	s := &g.ring.slots[i]
	p := &part{head: s.head, size: s.body, ring: g.ring, slot: i, fd: -1, place: hostmem.Place{Ring: g.ring.number, Offset: uint64(i * g.ring.size), Size: uint64(s.body)}}
	if has != g.ring.number {
		var err error
		if p.fd, err = g.ring.memory.Descriptor(); err != nil {
			return g.apart(got, r, noMemory(err))
		}
	}
	g.clock++
	s.readers, s.used = s.readers+1, g.clock
	return p, nil
}

// find returns the slot that a step lies in, or the one to write it to; -1 if none is free. The lock is held.
func (g *sharers) find(of weak.Pointer[deliver.Step]) (at int, there bool) {
	if g.ring == nil {
		return -1, false
	}
	at = -1
	for i := range g.ring.slots {
		s := &g.ring.slots[i]
		if s.of == of {
			return i, true
		}
		if s.readers == 0 && (at < 0 || s.used < g.ring.slots[at].used) {
			at = i
		}
	}
	return at, false
}

// write assembles a part in a slot. It returns one that is larger, which lies elsewhere. The lock is held.
func (g *sharers) write(i int, got *deliver.Step, r deliver.Rank) (larger *part, err error) {
	s, from := &g.ring.slots[i], i*g.ring.size
	*s = slotOf{used: s.used}
	t, body, err := g.c.partOf(got, r, g.key.copies, g.ring.memory.Bytes()[from:from:from+g.ring.size])
	if err != nil {
		return nil, err
	}
	head, err := t.Append(nil)
	if err != nil {
		return nil, err
	}
	if g.most = max(g.most, len(body)); len(body) > g.ring.size {
		return &part{head: head, size: len(body), body: body, why: g.lack, done: func() {}, fd: -1}, nil
	}
	*s = slotOf{of: weak.Make(got), head: head, body: len(body), used: s.used}
	return nil, nil
}

// apart assembles a part in memory of its own, and why, as part has it. The lock is held.
func (g *sharers) apart(got *deliver.Step, r deliver.Rank, why string) (*part, error) {
	t, body, done, err := g.c.bodyOf(got, r, g.key.copies)
	if err != nil {
		return nil, err
	}
	g.most = max(g.most, len(body))
	head, err := t.Append(nil)
	return &part{head: head, size: len(body), body: body, why: why, done: done, fd: -1}, err
}

// renew makes a ring if there is none for bodies as large as they are, as soon as steps leave room for it. The lock is
// held.
func (g *sharers) renew() {
	if g.most == 0 || g.broken || g.ring != nil && g.ring.size >= g.most {
		return
	}
	if g.next.size < g.most {
		g.forgo()
		g.next = g.fitting()
	}
	n := g.next
	if g.lack = ""; n.slots == 0 {
		g.lack = noRoom
		return
	}
	if !g.c.steps.Lend(n.more) {
		return
	}
	g.next = coming{}
	if g.ring != nil {
		g.ring.giveUp()
		g.ring = nil
	}
	memory, err := hostmem.Create(n.slots * n.size)
	if err != nil {
		g.c.steps.GiveBack(int64(n.slots * n.size))
		g.broken, g.lack = true, noMemory(err)
		g.c.opts.Log.Warn("no memory is shared with a rank, which gets its steps through the socket", "rank", g.key.rank.String(), "err", err)
		return
	}
	g.ring = &ring{number: g.c.sharing.rings.Add(1), memory: memory, size: n.size, slots: make([]slotOf, n.slots)}
}

// noRoom is what ranks lack for whose bodies the budget has no ring. It has no numbers: ranks that say the same are shown as one.
const noRoom = "half of the constructor's buffer, the most that ranks map, has no room left for two of their batches: raise resources.constructor_buffer"

// noMemory is what ranks lack where the system gives none.
func noMemory(err error) string {
	return fmt.Sprintf("the constructor gets no memory that can be shared: %v", err)
}

// fitting is the ring that bodies want, with fewer slots if the budget has no more; the zero value if it has none. The
// lock is held.
func (g *sharers) fitting() coming {
	size := (g.most + g.most/slotRoom + slotStep - 1) / slotStep * slotStep
	before := int64(0)
	if g.ring != nil {
		before = g.ring.bytes()
	}
	for slots := g.slots; slots > 1; slots /= 2 {
		if more := int64(slots*size) - before; g.c.steps.SetAside(more) {
			return coming{slots, size, more}
		}
	}
	return coming{}
}

// forgo drops a ring that is to come. The lock is held.
func (g *sharers) forgo() {
	g.c.steps.Forgo(g.next.more)
	g.next = coming{}
}

func (r *ring) bytes() int64 { return int64(len(r.slots) * r.size) }

// giveUp leaves a ring to those who map it. The lock is held.
func (r *ring) giveUp() {
	_ = r.memory.Close() // there is nothing to do about memory that cannot be unmapped
	r.memory = nil
}

// free notes that a rank is done with a slot.
func (g *sharers) free(r *ring, slot int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.slots[slot].readers--
}

// leave notes that a rank has left, which had not given back some slots.
func (g *sharers) leave(held map[uint64]*part, last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	lost := last
	for _, p := range held {
		lost = lost || p.ring == g.ring
	}
	if lost {
		g.forgo()
	}
	if lost && g.ring != nil {
		g.c.steps.GiveBack(g.ring.bytes())
		g.ring.giveUp()
		g.ring = nil
	}
}

// enter adds a line to its group. slots is how many it could use.
func (s *sharing) enter(c *Constructor, key sharer, slots int) *sharers {
	if len(c.job.now().images) == 0 { // of images, each TP rank gets others
		key.rank.TP = 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[key]
	if g == nil {
		g = &sharers{c: c, key: key, slots: slots}
		s.groups[key] = g
	}
	g.lines++
	return g
}

// leave takes a line from its group, and reports whether it was the last one.
func (s *sharing) leave(g *sharers) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.lines--; g.lines == 0 && s.groups[g.key] == g {
		delete(s.groups, g.key)
	}
	return g.lines == 0
}

// errTicket is of class lost, as a rank that was stopped for a while may come too late, and gets another ticket when it tries again.
var errTicket = fault.Lostf("the ticket is not known: it is good for one line and some seconds")
