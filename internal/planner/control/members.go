package control

import (
	"fmt"
	"slices"
)

// members are the loaders and constructors that are connected.
type members struct {
	loaders      []*loader      // in the order in which they came
	places       []place        // by number; see places.go
	table        [][]int        // by source: the places that read it; see deal.go
	exact        bool           // other places read nothing
	wanting      [][]int        // the table as it is wanted, once all that it names have their sources open; nil: as it is
	dealt        dealt          // what follows from it
	open         []bool         // by place: its loader is there, and not in doubt
	promotions   int            // of shadows, so far
	again        int            // blocks that were to be read again, as their loader was lost
	besides      bool           // it was said that all loaders are on one host
	constructors []*constructor // by number; nil until it is there
	stands       []stand        // by number
	homes        []homing       // by number; see home.go
	spares       []*constructor // in the order in which they came
	replaced     replacements
	came         map[uint64]uint64 // by process of a constructor: one more than the last generation that it said it is in
	twins        []twin            // in the order in which they came
	wanted       map[block]*loader
	unread       map[block][]*loader // of wanted: those that could not read it
	floors       floors
	indexing     bool // the sources of the spec are being indexed, or were
}

// block names a block of a source.
type block struct {
	source int32
	seq    int64
}

// loader is a loader's session.
type loader struct {
	session       Session
	name, address string
	instance      uint64 // of its process; 0: not known
	workers       int    // blocks it reads at a time
	buffer        int64  // bytes of samples it has memory for
	floors        uint64 // the last change of floors that it was sent
	reader        uint32 // index into the readers of the core's data
	finished      Millis // when it last read a block, as far as pace saw
	place         int    // that it reads for; noPlace: it is a shadow
	kept          bool   // it had this place before it joined
	opened        []bool // by source: it said, as a shadow, that it has it open
	trust
}

// String names a loader in messages.
func (l *loader) String() string {
	if l.name == l.address {
		return "loader " + l.name
	}
	return fmt.Sprintf("loader %s (%s)", l.name, l.address)
}

// addressOf is where a loader is reached; "" if there is none.
func (l *loader) addressOf() string {
	if l == nil {
		return ""
	}
	return l.address
}

// constructor is a constructor's session.
type constructor struct {
	session       Session
	name, address string
	instance      uint64  // of its process; 0: not known
	node          *uint32 // that it is on; nil: it did not say
	misplaced     bool    // it was said that the node has no ranks
	joined        Millis  // when it did
	number        int
	buckets       []uint32         // DP ranks it serves
	joins         map[uint64]*join // it was asked about, by number
	generation    uint64           // that it said it is in
	lag           Lag              // what it last said
	trust
	quiet bool    // it has missed a few beats
	calls reports // of ranks to which it says nothing
	held  *Held   // what it kept, until it hears where that goes on
	has   int64   // it has the plans of the steps before
}

func newMembers(constructors int) members {
	return members{constructors: make([]*constructor, constructors), stands: make([]stand, constructors), homes: make([]homing, constructors), replaced: replacements{of: map[string]*trust{}}, came: map[uint64]uint64{}, wanted: map[block]*loader{}, unread: map[block][]*loader{}}
}

// present are the constructors that are there, by number.
func (m *members) present() []*constructor {
	return slices.DeleteFunc(slices.Clone(m.constructors), func(x *constructor) bool { return x == nil })
}

// constructor finds a session; nil if it is over.
func (m *members) constructor(s Session) *constructor {
	for _, x := range m.constructors {
		if x != nil && x.session == s {
			return x
		}
	}
	return nil
}

// allConstructors are those that are present, and the spare ones after them.
func (m *members) allConstructors() []*constructor { return append(m.present(), m.spares...) }

// anyConstructor finds a session, that of a spare one, too; nil if it is over.
func (m *members) anyConstructor(s Session) *constructor {
	for _, x := range m.allConstructors() {
		if x.session == s {
			return x
		}
	}
	return nil
}

func (m *members) loader(s Session) *loader {
	for _, l := range m.loaders {
		if l.session == s {
			return l
		}
	}
	return nil
}

func (m *members) dropLoader(s Session) *loader {
	l := m.loader(s)
	m.loaders = slices.DeleteFunc(m.loaders, func(x *loader) bool { return x == l })
	if l != nil {
		m.unseat(l)
	}
	return l
}

func (m *members) dropConstructor(s Session) *constructor {
	x := m.constructor(s)
	if x != nil {
		m.constructors[x.number] = nil
	}
	return x
}

// addLoader brings a loader to the present, and gives it its part of the work.
func (c *Core) addLoader(ev LoaderJoined) {
	if c.isTwin(twin{kind: "loader", id: ev.Name, address: ev.Address, session: ev.Session, instance: ev.Instance, joined: ev}) {
		return
	}
	l := &loader{session: ev.Session, name: ev.Name, address: ev.Address, instance: ev.Instance, workers: ev.Workers, buffer: ev.Buffer}
	l.reader = c.data.reader(l.String())
	c.note(Info, "loader joined", "loader", l.name, "address", l.address)
	for n := range c.sources.entries {
		c.emit(c.addOrder(l, n))
	}
	for i, x := range c.sources.indexed {
		if x != nil {
			c.emit(Frozen{l.session, i, x.Manifest})
		}
	}
	c.emit(Bans{l.session, c.journal.bans}) // comes last: a loader answers constructors from then on
	c.seat(l, ev.Had)
	c.members.loaders = append(c.members.loaders, l)
	c.rearrange()
	if c.firstMember(); c.plan == nil && l.place != noPlace && c.members.primaries() == c.cfg.Loaders {
		c.members.indexing = true
		c.indexMissing()
	}
	c.raise(onFiles) // there may have been no loader to ask
	c.start()
}

// removeLoader gives the work of a loader that left to the others.
func (c *Core) removeLoader(ev LoaderLeft) {
	l := c.members.dropLoader(ev.Session)
	if l == nil {
		c.dropTwin(ev.Session)
		return
	}
	c.noteLeft("loader", l.name, ev.Err)
	c.sources.forgetLookups() // it may have been the one that was asked
	c.raise(onFiles)
	c.rearrange()
	c.indexMissing()
	c.start() // it may have waited for the one that left
}

// noteLeft logs the end of a member's session.
func (c *Core) noteLeft(role, name string, err error) {
	if err == nil {
		c.note(Info, role+" left", role, name)
		return
	}
	c.note(Warn, role+" lost", role, name, "err", err)
}

// indexMissing has the sources indexed that are not.
func (c *Core) indexMissing() {
	for i, x := range c.sources.indexed {
		if x == nil {
			c.index(i)
		}
	}
}

// wantOrphans has the blocks read by others that a loader was asked for which left or is in
// doubt.
func (c *Core) wantOrphans() {
	var orphans []block
	for b, owner := range c.members.wanted {
		if !c.members.reads(owner) && c.loaderOf(b) != owner {
			orphans = append(orphans, b)
		}
	}
	slices.SortFunc(orphans, compareBlocks)
	for _, b := range orphans {
		c.want(b)
	}
}

// want has a block read.
func (c *Core) want(b block) {
	if len(c.members.loaders) == 0 {
		c.members.wanted[b] = nil
		return
	}
	l := c.loaderOf(b)
	if c.members.wanted[b] = l; l == nil {
		return // whoever takes its place is asked
	}
	c.emit(Read{l.session, b.source, b.seq})
}

// addConstructor gives a constructor a free number, the job, and all steps under way.
func (c *Core) addConstructor(ev ConstructorJoined) {
	if c.isTwin(twin{kind: "constructor", id: ev.Name, address: ev.Address, session: ev.Session, instance: ev.Instance, joined: ev}) {
		return
	}
	c.replace(ev)
	if c.waitsForHolders(ev) {
		return
	}
	m := &constructor{session: ev.Session, name: ev.Name, address: ev.Address, instance: ev.Instance, joins: map[uint64]*join{}, held: ev.Held, node: ev.Node, joined: c.now}
	if c.plan == nil { // nobody trains yet
		defer c.goHome()
	}
	number := c.numberFor(m)
	if number < 0 || c.onTrial(m) {
		c.addSpare(m)
		return
	}
	c.standAgain(m)
	c.serve(m, number)
	c.note(Info, "constructor joined", "constructor", m.name, "address", m.address, "buckets", m.buckets)
	switch {
	case c.failed != nil:
		c.emit(Failure{m.session, c.failed})
	case c.plan != nil:
		c.welcome(m)
	default:
		c.hearHeld(m)
	}
}

// removeConstructor frees the number of a constructor. What was to be sent to it is not.
func (c *Core) removeConstructor(ev ConstructorLeft) {
	m := c.members.dropConstructor(ev.Session)
	if m == nil {
		if !c.dropSpare(ev) {
			c.take.dropLate(ev.Session)
			c.dropTwin(ev.Session)
		}
		return
	}
	c.unsend(m)
	c.noteLeft("constructor", m.name, ev.Err)
	c.raise(onMembers | onRestarted)
	if c.vacate(m); m.ended {
		c.standIn()
	}
}

// unsend drops what is to be sent to a constructor and waits for the log.
func (c *Core) unsend(m *constructor) {
	c.out.drop(func(e Effect) bool { to, ok := addressee(e); return ok && to == m.session })
}

// addressee is the constructor that an effect is for, if it is for one.
func addressee(e Effect) (Session, bool) {
	switch e := e.(type) {
	case Brief:
		return e.To, true
	case Joined:
		return e.To, true
	case Placement:
		return e.To, true
	case Entered:
		return e.To, true
	case Admit:
		return e.To, true
	case Restart:
		return e.To, true
	case Deliver:
		return e.To, true
	case EndOfData:
		return e.To, true
	}
	return 0, false
}

// brief gives a constructor the job, as it is on this mesh.
func (c *Core) brief(m *constructor) {
	m.buckets = c.bucketsOf(m)
	c.send(Brief{m.session, m.buckets, c.job.tree})
	for n := range c.sources.joined {
		c.send(c.joinedOrder(m, n))
	}
	if !c.regathers() {
		c.send(c.placement(m))
	}
}

// resend brings a constructor to the present: reset to the acknowledged position, then
// every step after it.
func (c *Core) resend(m *constructor) {
	acked := c.plan.Acked()
	c.send(Entered{m.session, c.roster.joins})
	c.send(Restart{To: m.session, Generation: c.job.generation, NextStep: acked, Moved: c.job.moved, Resent: c.job.positioned})
	c.sendSteps(m, acked)
}

// sendSteps sends a constructor the steps from one on that are planned, and the end.
func (c *Core) sendSteps(m *constructor, from int64) {
	for k := max(from, c.plan.Acked()); k < c.plan.Planned(); k++ {
		if s := c.job.steps[k]; s != nil && (c.job.remesh == nil || k < c.job.remesh.Step) {
			c.deliver(s, []*constructor{m})
		}
	}
	if c.job.ended >= 0 || c.job.remesh != nil {
		c.send(c.endOfData(m))
	}
}

// placement says where the loaders are.
func (c *Core) placement(m *constructor) Effect {
	order := Placement{To: m.session}
	if len(c.members.loaders) == 0 {
		return order
	}
	for i, p := range c.members.places {
		if !c.members.open[i] {
			order.Suspects = append(order.Suspects, i)
		}
		if p.loader == nil {
			p.loader = c.members.any()
		}
		order.Loaders = append(order.Loaders, p.loader.addressOf())
		order.Shadows = append(order.Shadows, p.shadow.addressOf())
	}
	return order
}

func (c *Core) placementChanged() {
	if !c.regathers() {
		c.sendAll(c.placement)
	}
	c.readersChanged()
}

// constructorOf is the constructor that serves a DP rank; nil if it is not there.
func (c *Core) constructorOf(dp uint32) *constructor { return c.serving(c.numberOf(int(dp))) }

// serving is the constructor that serves the buckets of a number; nil if there is none.
func (c *Core) serving(number int) *constructor {
	if m := c.members.constructors[number]; m != nil {
		return m
	}
	return c.members.stands[number].in
}

func (c *Core) restarted(ev Restarted) {
	if m := c.members.constructor(ev.Session); m != nil {
		m.generation = ev.Generation
		c.raise(onRestarted)
		if len(c.members.came) >= maxCame {
			clear(c.members.came) // they begin again when they come back
		}
		c.members.came[m.instance] = ev.Generation + 1
	}
}

// maxCame bounds the processes of constructors that are remembered.
const maxCame = 4096
