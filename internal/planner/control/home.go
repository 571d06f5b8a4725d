package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Where nodes are known, the number of a node belongs to a constructor that is on it: its ranks map
// their batches there. Whoever came first, or was left, may have the number nevertheless. Then one of
// the node that is there, spare or with another number, gets it after a while, and who had it gets the
// number that this one had, or is spare. Each time doubles the while for the number: one that comes and
// goes moves no ranks for it.

// elsewhereTime is how long the ranks of a node are served from elsewhere before it is said.
const elsewhereTime Millis = 60_000

// homing is what is known of a number and its node.
type homing struct {
	times     int    // that a constructor of the node got it from another one, of late
	last      Millis // when it did
	elsewhere bool   // no constructor of the node serves it
	since     Millis // then
	noted     bool   // it was said
}

// home is the number of a constructor's node; -1 if it is on none that has ranks, or nodes are of no account.
func (c *Core) home(m *constructor) int {
	if c.cfg.NodeRanks == 0 || m.node == nil || c.misplaced(m) {
		return -1
	}
	return int(*m.node) % len(c.members.constructors) // of a mesh that grew there may be more nodes than numbers
}

// Nodes is how many nodes ranks are on, each of them on one.
func Nodes(ranks, each int) int { return (ranks + each - 1) / each }

// Uneven says what is taken for granted where nodes do not have as many ranks as each is said to have; "" if they do.
func Uneven(ranks, each int) string {
	switch {
	case each == 0 || ranks%each == 0:
		return ""
	case each > ranks:
		return "--ranks-per-node is more than the ranks of the job: all of them are taken to be on node 0"
	}
	return fmt.Sprintf("--ranks-per-node does not divide the ranks of the job: the last of %d nodes is taken to have %d", Nodes(ranks, each), ranks%each)
}

// nodes is how many nodes have ranks of the mesh.
func (c *Core) nodes() int { return Nodes(c.job.tree.World(), c.cfg.NodeRanks) }

// misplaced says whether a constructor is on a node that has no ranks, as far as it says.
func (c *Core) misplaced(m *constructor) bool {
	return c.cfg.NodeRanks > 0 && m.node != nil && uint64(*m.node) >= uint64(c.nodes())
}

// unsettled says whether it is not known yet where the job goes on, and so on which mesh.
func (c *Core) unsettled() bool {
	return c.failed != nil || c.take.reading || c.cfg.Resumes && (c.plan == nil || !c.take.settled)
}

// goHome gives numbers to constructors of their nodes that others have.
func (c *Core) goHome() {
	if c.cfg.NodeRanks == 0 || c.unsettled() {
		return
	}
	before := c.members.present()
	if slices.ContainsFunc(before, func(m *constructor) bool { return m.held != nil }) {
		return // it has yet to hear where the job goes on
	}
	moved := false
	for number := range c.members.constructors {
		moved = c.bringHome(number) || moved
	}
	if moved {
		c.resettle(before)
	}
}

// bringHome gives a number to a constructor of its node, if another one has it or nobody, and if those
// that then have another number may have it. Whom it concerns hears it later (resettle).
func (c *Core) bringHome(number int) bool {
	m := &c.members
	had := m.constructors[number]
	if had != nil && (had.ended || c.home(had) == number) {
		return false
	}
	to := c.strayed(number)
	if to == nil || !c.dealt(number) {
		return false
	}
	left := slices.Index(m.constructors, to)
	if left < 0 {
		if had == nil {
			return false // it is seated without this
		}
		m.spares = slices.DeleteFunc(m.spares, func(x *constructor) bool { return x == to })
		c.retire(had, to)
	} else if !c.fill(left, number) {
		return false
	}
	m.constructors[number], to.number = to, number
	m.stands[number].in, m.stands[number].had = nil, true
	if c.plan != nil {
		m.homes[number].count(c.now)
	}
	return true
}

// fill has another constructor than the one that leaves a number serve its buckets: a spare one of its
// node, or whoever served those of the number that it goes to; if that was nobody, a spare one. False
// if there is none, or that of the node is to have it, and is not there for long enough.
func (c *Core) fill(left, number int) bool {
	m := &c.members
	had, s, i := m.constructors[number], &m.stands[number], c.spareFor(left)
	own := i >= 0 && c.home(m.spares[i]) == left
	switch {
	case own && had != nil && !c.settledFor(m.spares[i], left):
		return false
	case own || had == nil && i >= 0:
		x := m.spares[i]
		m.spares = slices.Delete(m.spares, i, i+1)
		if had != nil {
			c.retire(had, m.constructors[left])
		}
		m.constructors[left], x.number = x, left
	case had != nil && had.heard():
		m.constructors[left], had.number = had, left
	case had == nil && s.in != nil && s.in.heard():
		m.constructors[left], m.stands[left].in = nil, s.in
	default:
		return false
	}
	return true
}

// retire makes a constructor spare; another one stands in where it did.
func (c *Core) retire(m, other *constructor) {
	c.members.spares = append(c.members.spares, m)
	for n := range c.members.stands {
		if s := &c.members.stands[n]; s.in == m {
			s.in = other
		}
	}
}

// count notes that a constructor of the node got the number.
func (h *homing) count(now Millis) {
	if now-h.last >= remember {
		h.times = 0
	}
	h.times, h.last = h.times+1, now
}

// strayed is a constructor of a number's node without it that may have it, rather one that is spare; nil
// if there is none.
func (c *Core) strayed(number int) *constructor {
	for _, m := range slices.Concat(c.members.spares, c.members.present()) {
		if c.home(m) == number && c.fit(m) && c.settledFor(m, number) {
			return m
		}
	}
	return nil
}

// settledFor says whether a constructor is there for long enough to have its node's number.
func (c *Core) settledFor(m *constructor, number int) bool {
	h, wait := &c.members.homes[number], regain
	if c.now-h.last < remember {
		wait = min(regain<<min(h.times, 10), mostRegain)
	}
	return c.plan == nil || c.now-m.joined >= wait // nobody trains before
}

// spareFor is the spare constructor that is to have a number, by its index: rather one of its node; -1
// if there is none.
func (c *Core) spareFor(number int) int {
	i := slices.IndexFunc(c.members.spares, func(m *constructor) bool { return c.fit(m) && c.home(m) == number })
	if i < 0 {
		i = slices.IndexFunc(c.members.spares, c.fit)
	}
	return i
}

// resettle tells constructors of numbers that changed hands. Those that serve ranks before and after it
// go on with what they have; the generation goes on.
func (c *Core) resettle(before []*constructor) {
	c.raise(onMembers)
	after := c.members.present()
	for _, m := range before {
		if !slices.Contains(after, m) {
			m.held, m.has = nil, 0
			c.note(Info, "constructor is spare: one on the ranks' node serves them", "constructor", m.name, "address", m.address)
			c.dismiss(m)
		}
	}
	for _, m := range after {
		came := !slices.Contains(before, m)
		if !came && slices.Equal(m.buckets, c.bucketsOf(m)) {
			continue
		}
		m.calls = reports{}
		switch {
		case c.plan == nil:
			c.brief(m)
			c.send(Restart{To: m.session, Generation: c.job.generation}) // it takes other ranks with one alone
		case came:
			c.brief(m)
			c.resend(m)
		default:
			c.extend(m)
		}
		if c.home(m) == m.number {
			c.note(Info, "a constructor serves the ranks of its node", "constructor", m.name, "address", m.address, "node", *m.node, "buckets", m.buckets)
		}
	}
}

// Elsewhere is a node whose ranks have been served from elsewhere for long.
type Elsewhere struct {
	Node          int
	Buckets       []uint32 // the DP ranks whose first rank is there
	Name, Address string   // of the constructor that serves them
	On            *uint32  // the node that it is on; nil if it says none
	Seconds       float64
}

// Misplaced is a constructor on a node that has no ranks: it serves what is left, or is spare.
type Misplaced struct {
	Name  string
	Node  uint32 // that it is on, as it says
	Nodes int    // that have ranks
	Ranks int    // of each, as --ranks-per-node says
}

// lookMisplaced says once of each constructor that its node has no ranks.
func (c *Core) lookMisplaced() {
	if c.cfg.NodeRanks == 0 || c.unsettled() {
		return
	}
	var news []string
	for _, m := range c.members.allConstructors() {
		misplaced := c.misplaced(m)
		if misplaced && !m.misplaced {
			news = append(news, fmt.Sprintf("%s on node %d", cmp.Or(m.name, m.address), *m.node))
		}
		m.misplaced = misplaced
	}
	if len(news) > 0 {
		c.note(Warn, "sidecars are on nodes that have no ranks, as they say: they serve what is left, or are spare; give each one the --node that it is on, from 0 on",
			"sidecars", strings.Join(news, ", "), "nodes", c.nodes(), "ranks_per_node", c.cfg.NodeRanks)
	}
}

// allMisplaced are the constructors of which that was said.
func (c *Core) allMisplaced() (all []Misplaced) {
	for _, m := range c.members.allConstructors() {
		if m.misplaced {
			all = append(all, Misplaced{Name: cmp.Or(m.name, m.address), Node: *m.node, Nodes: c.nodes(), Ranks: c.cfg.NodeRanks})
		}
	}
	return all
}

// lookHome notes which nodes' ranks are served from elsewhere, and says so once of each.
func (c *Core) lookHome() {
	if c.cfg.NodeRanks == 0 || c.plan == nil || c.failed != nil {
		return
	}
	news := false
	for number := range c.members.homes {
		h, m := &c.members.homes[number], c.serving(number)
		switch {
		case m == nil || c.home(m) == number || !c.dealt(number):
			h.elsewhere, h.noted = false, false
		case !h.elsewhere:
			h.elsewhere, h.since = true, c.now
		case !h.noted && c.now-h.since >= elsewhereTime:
			h.noted, news = true, true
		}
	}
	if !news {
		return
	}
	var nodes []string
	for _, x := range c.elsewhere() {
		nodes = append(nodes, fmt.Sprintf("%d by %s", x.Node, cmp.Or(x.Name, x.Address)))
	}
	c.note(Warn, "ranks get their batches from another node, without shared memory: no constructor on theirs serves them", "nodes", strings.Join(nodes, ", "))
}

// elsewhere are the nodes of which that is said, by number.
func (c *Core) elsewhere() (all []Elsewhere) {
	if c.cfg.NodeRanks == 0 {
		return nil
	}
	at := map[int]int{} // by node: one more than its index
	for d := range c.job.tree.Sizes().DP {
		number := c.numberOf(d)
		h, m := c.members.homes[number], c.serving(number)
		if !h.noted || m == nil {
			continue
		}
		node := c.nodeOf(d)
		if at[node] == 0 {
			all = append(all, Elsewhere{Node: node, Name: m.name, Address: m.address, On: m.node, Seconds: (c.now - h.since).Seconds()})
			at[node] = len(all)
		}
		x := &all[at[node]-1]
		x.Buckets = append(x.Buckets, uint32(d))
	}
	return all
}
