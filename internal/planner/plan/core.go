// Package plan is the pure core of the planner: events go in, effects come out.
//
// It draws the samples of each step by the mix, packs them into rows, has a
// strategy place the rows, and runs ahead of the slowest trainer under a limit.
// It owns every decision about order and nothing else: no clock, disk, network,
// goroutine or global randomness is inside, and the arrival order of events
// changes no plan. Changes that come from outside apply to a step and those
// after it, and are part of the position from then on. planner is the shell
// around it: it makes effects durable first and sends them then.
//
// Apply is not safe for concurrent use; one goroutine owns a Core.
package plan

import (
	"slices"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// carryLimit bounds the samples carried over from one step to the next: they
// travel in every resume token, at about 5 bytes each.
const carryLimit = 32

// waitLimit bounds the giants among them, so that other samples find a place too.
const waitLimit = carryLimit / 2

// Source is what the core knows of a source.
type Source struct {
	Name    string
	Blocks  int64 // blocks in one epoch; positive
	Limit   int64 // samples in one epoch at most; 0 = no limit
	Longest int32 // tokens of a sample at most
}

// Config is the job as the core sees it. It is read-only.
type Config struct {
	Seed           uint64
	Sources        []Source
	Schedule       mix.Schedule
	Grain          string            // "step", "substep" or "epoch": how often the schedule's weights move
	Random         bool              // sources are drawn at random by their shares, not by deficit
	CountSamples   bool              // the mix counts samples, not tokens
	Epochs         int64             // limit for every source; 0 = none
	Renormalize    bool              // at the limit of one source go on with the others; else stop
	SequenceLength int32             // tokens per row
	Multiple       int32             // a sample takes a multiple of it of a row; 0 is 1
	Rows           int               // rows per step; with Widest, their widths added up
	Pool           bool              // the DP x CP ranks are one pool, whose ranks have rows of their own
	Widest         int32             // in a pool, rows have widths up to it, a power of two; 0 and 1: all have width 1
	Fill           int32             // thousandths of a step's tokens that samples fill; 0 and 1000: as many as fit
	MicrobatchSize int               // rows in a microbatch of one DP rank; default 1
	Packing        bool              // several samples per row
	Images         bool              // samples have images
	Mesh           *mesh.Tree        // default: a single rank
	Strategy       strategy.Strategy // default: strategy.InOrder
	Ahead          int64             // steps planned ahead of the slowest trainer; positive
	Window         int               // samples of each source to know ahead; positive

	// Fits says why rows of a shape cannot be cut for a mesh; nil if all can. Changes are asked.
	Fits func(Shape, *mesh.Tree) error

	// Both is strategy.Input's: what it calls at the same time decides speed, never a plan.
	Both func(a, b func())

	// Long samples wait for others; without thresholds none does. Most is set by
	// the rows of a step.
	Outliers balance.OutlierQueue

	Root [32]byte
}

// Ref names one sample.
type Ref struct {
	Source int32
	Seq    int64 // block sequence number: epoch * blocks + block
	Index  int32 // place in the block
	Length int32 // tokens
}

// Cursor is the position in one source.
type Cursor struct {
	Seq     int64 // block of the next sample
	Index   int32 // its place in the block
	Deficit int64 // behind the schedule, in 2^-12 units (tokens or samples)
	Tokens  int64 // drawn so far
	Samples int64 // drawn since the core was last moved; no plan depends on it, and tokens leave it out
	InEpoch int64 // samples drawn in the current epoch; kept for sources with a limit only
}

// State is a position in a job: everything that the steps after it depend on.
type State struct {
	Step     int64 // steps done
	Cursors  []Cursor
	Carry    []Ref  // drawn but not delivered, the longest first
	Held     []Held // drawn, and waiting for others of their length, in the order of drawing
	Settings Settings
	Pending  []Change // made, but for steps to come; by rising step
}

// Start is the position before the first step.
func Start(sources int) State { return State{Cursors: make([]Cursor, sources)} }

// Clone copies a state. Settings and changes are never written to: they are shared.
func (s State) Clone() State {
	s.Cursors = slices.Clone(s.Cursors)
	s.Carry = slices.Clone(s.Carry)
	s.Held = slices.Clone(s.Held)
	s.Pending = slices.Clone(s.Pending)
	return s
}

// Await makes changes for steps to come part of the position.
func (s *State) Await(changes ...Change) { s.Pending = inserted(s.Pending, changes...) }

// Step is the plan of one step.
type Step struct {
	Step    int64
	Shape   Shape
	Mesh    *mesh.Tree
	Rows    []int32 // samples in each row; rows without any are padding only
	Drawn   []int64 // tokens drawn from each source in this step
	Draws   []int64 // samples drawn from each source in this step
	Filled  int64   // tokens in all rows
	Placed  *strategy.Result
	Buffer  *dgraph.Buffer // the samples that Placed is about
	Waited  []Held         // samples whose wait for others is over: the first of Buffer
	Changes []Change       // that apply from this step on
	Banned  []Ref          // drawn, carried or held, and left out for a ban
	Parts   []Part         // what it drew by which shares; nil if sources were drawn by chance
	Given   bool           // a strategy gave the shares; Parts is nil
	Passed  [][2]Ref       // for each source, the first sample passed over by a skip, and the one after the last
	After   State          // the position after this step
}

// Event is something that happened outside: one of BlockRead, Acked,
// Assembled, Changed, Cancelled, Rewind, Readers.
type Event interface{ event() }

// BlockRead reports the samples of a block that was wanted.
type BlockRead struct {
	Source    int32
	Seq       int64
	Lengths   []int32 // tokens of each sample, in order
	Images    *Images // of samples with images; nil if the source has none
	Banned    []Banned
	Bans      int       // bans of the job that the reader knew of
	Bytes     int64     // of the reader's memory that the block takes; 0 if it does not say
	Discarded Discarded // records that gave no sample
}

// Images are the images of a block's samples, as patches to encode.
type Images struct {
	Offsets []int32 // sample i has the images Offsets[i] to Offsets[i+1]
	Patches []int32 // of each image
}

// Acked reports that all trainers are done with all steps before Step.
type Acked struct{ Step int64 }

// Assembled reports the digests of some rows of a step.
type Assembled struct {
	Step    int64
	Rows    []uint32
	Digests [][32]byte
}

// Changed is a change that was checked. It applies to its step or, if that is
// planned already, to the next that is not.
type Changed struct{ Change Change }

// Cancelled takes a change back that is pending, as CheckCancel found.
type Cancelled struct{ Change Change }

// Rewind moves the job to another position: that of a resume token. Digest is
// the chain value there. A core that goes on where another one stopped plans the steps
// before Until whoever is done with what, for they were planned before, and has the chain
// values Known of the positions that follow.
type Rewind struct {
	State  State
	Digest [32]byte
	Known  [][32]byte
	Until  int64
}

func (BlockRead) event() {}
func (Acked) event()     {}
func (Assembled) event() {}
func (Changed) event()   {}
func (Cancelled) event() {}
func (Rewind) event()    {}

// Effect is something the shell has to do: one of Want, Release, Publish, End,
// Digested, Fail.
type Effect interface{ effect() }

// Want asks for the metadata of a block; BlockRead answers it.
type Want struct {
	Source int32
	Seq    int64
}

// Release says that the blocks of a source before Before are not needed any more.
type Release struct {
	Source int32
	Before int64
}

// Publish hands out a plan. The shell makes it durable before it sends it.
type Publish struct{ Step *Step }

// End is the end of the data: no step Step, and none after it.
type End struct {
	Step     int64
	Withheld []int32 // sources that hold the weight that is left, and are paused or dropped; none if the data is used up
}

// Digested gives the chain value after Step steps.
type Digested struct {
	Step   int64
	Digest [32]byte
}

// Fail ends the job.
type Fail struct{ Err error }

func (Want) effect()     {}
func (Release) effect()  {}
func (Publish) effect()  {}
func (End) effect()      {}
func (Digested) effect() {}
func (Fail) effect()     {}

// Core is the state machine.
type Core struct {
	cfg     Config
	state   State // after the last planned step; changes that are due are in its settings
	acked   int64
	window  map[int64]State // positions from acked to planned
	sources []source
	readers []Reader // of each source; none is known of those that are not there
	digests digests
	until   int64 // steps before it are planned however far the trainers are
	ended   int64 // the step that does not exist; -1 while unknown
	failed  error
	packer  balance.Packer
	wide    balance.WidePacker
	runner  strategy.Runner
	effects []Effect
	pending *draft // the next step as far as it could be drawn; nil if there is none
	last    *draft // the one that found no sample
	step    prelude
	// There is no more to draw of the next step before it may be planned.
	prepared bool
	scratch  struct { // memory of the last draft
		samples int // about how many
		jumps   []jump
	}
}

// prelude is what happened before the next step's own samples are drawn.
type prelude struct {
	begun   bool
	changes []Change // that are due
	skip    int64    // steps whose data is still to be passed over
	from    []Cursor // where that began
	passed  bool
}

// New returns a core at the start of the job. Apply(Rewind) moves it.
func New(cfg Config) *Core {
	if cfg.Strategy == nil {
		cfg.Strategy = strategy.InOrder
	}
	cfg.MicrobatchSize = max(cfg.MicrobatchSize, 1)
	c := &Core{cfg: cfg}
	c.reset(Rewind{State: Start(len(cfg.Sources)), Digest: cfg.Root})
	return c
}

func (c *Core) reset(to Rewind) {
	s := to.State
	c.state, c.acked, c.ended, c.until = s.Clone(), s.Step, -1, to.Until
	c.window = map[int64]State{s.Step: s.Clone()}
	c.sources = nil
	for _, src := range c.cfg.Sources {
		c.addSource(src)
	}
	all := c.ahead()
	for _, a := range all.Added {
		c.addSource(a.Source)
	}
	for _, b := range all.Bans {
		c.ban(b)
	}
	c.digests = newDigests(s.Step, to.Digest, to.Known)
	c.pending, c.step, c.prepared = nil, prelude{}, false
}

// Start plans as far as it can without any event.
func (c *Core) Start() []Effect { return c.drain(func() { c.advance(allSources) }) }

// Apply takes one event and returns what has to be done, in order. After a Fail
// it does nothing.
func (c *Core) Apply(ev Event) []Effect {
	return c.drain(func() {
		switch ev := ev.(type) {
		case BlockRead:
			c.blockRead(ev)
			c.advance(ev.Source)
			return
		case BlockUnread:
			c.blockUnread(ev)
		case Acked:
			c.ack(ev.Step)
		case Assembled:
			c.assembled(ev)
			return // no plan depends on it
		case Changed:
			c.change(ev.Change)
		case Cancelled:
			c.cancel(ev.Change)
		case Rewind:
			c.reset(ev)
		case Readers:
			c.readers = ev.Of
			return // the next step looks ahead by it
		}
		c.advance(allSources)
	})
}

func (c *Core) drain(work func()) []Effect {
	c.effects = nil
	if c.failed == nil {
		work()
	}
	return c.effects
}

// room is how many tokens of a row a sample takes.
func (c *Core) room(length int32) int32 {
	m := c.cfg.Multiple
	if m <= 1 {
		return length
	}
	return (length + m - 1) / m * m
}

func (c *Core) emit(e Effect) { c.effects = append(c.effects, e) }

func (c *Core) fail(err error) {
	c.failed = err
	c.emit(Fail{err})
}

// Planned is the number of steps planned so far.
func (c *Core) Planned() int64 { return c.state.Step }

// Acked is the number of steps that all trainers are done with.
func (c *Core) Acked() int64 { return c.acked }

// State returns the position after step steps, if the core still holds it:
// positions from Acked to Planned.
func (c *Core) State(step int64) (State, bool) {
	s, ok := c.window[step]
	return s, ok
}

// Digest returns the chain value after step steps, if it is known and held.
func (c *Core) Digest(step int64) ([32]byte, bool) { return c.digests.at(step) }

// Missing counts the rows of the next undigested step that were not assembled.
func (c *Core) Missing() (step int64, rows int) { return c.digests.missing() }

func (c *Core) ack(step int64) {
	if step <= c.acked || step > c.state.Step {
		return
	}
	for k := c.acked; k < step; k++ {
		delete(c.window, k)
	}
	c.acked = step
	c.digests.forget(step)
	c.release()
}

// Effective is the step that a change made now would apply to first.
func (c *Core) Effective(step int64) int64 {
	next := c.state.Step
	if c.step.passed || c.step.skip > 0 {
		next++ // samples of this one are passed over already
	}
	return max(step, next)
}

// change makes a change part of all positions that come before it.
func (c *Core) change(ch Change) {
	ch.Step = c.Effective(ch.Step)
	c.state.Await(ch)
	for k, s := range c.window {
		s.Await(ch)
		c.window[k] = s
	}
	switch ch.Kind {
	case AddSource:
		c.addSource(ch.Add.Source)
	case BanSample:
		c.ban(ch.Ban)
	}
	if c.ended >= 0 && ch.Step >= c.ended {
		return // there is no such step
	}
	c.pending = nil // what was drawn for the next step may be drawn otherwise now
	c.step.begun, c.prepared = false, false
}

// advance plans steps while the limit allows it and the samples are known, and looks
// ahead in source read, of which a block was read; in all if there may be more to see.
func (c *Core) advance(read int32) {
	for c.failed == nil && c.ended < 0 && (c.state.Step-c.acked < c.cfg.Ahead || c.state.Step < c.until) {
		if c.begin(); c.failed != nil {
			return
		}
		step, end := c.next()
		if end {
			c.ended = c.state.Step
			c.emit(End{c.ended, c.last.withheld()})
			return
		}
		if step == nil {
			break
		}
		read = allSources
		for i, cur := range step.After.Cursors {
			c.sources[i].pace = cur.Samples - c.state.Cursors[i].Samples
		}
		if c.step.skip > 0 {
			c.pass(step)
			continue
		}
		c.publish(step)
	}
	if c.failed == nil && c.ended < 0 {
		c.lookAhead(read)
	}
}

// begin makes the changes that are due at the next step, once.
func (c *Core) begin() {
	if c.step.begun {
		return
	}
	c.step.begun = true
	made, err := c.state.Begin(&c.cfg)
	if err != nil {
		c.fail(err)
		return
	}
	for _, ch := range made {
		if ch.Kind == Skip {
			c.step.skip += ch.Steps
			c.step.from = slices.Clone(c.state.Cursors)
		}
	}
	c.step.changes = append(c.step.changes, made...)
}

// pass goes on behind a step without delivering it.
func (c *Core) pass(step *Step) {
	c.state = step.After
	c.state.Step = step.Step
	c.step.skip--
	c.step.passed = true
}

func (c *Core) publish(step *Step) {
	step.Changes = c.step.changes
	if c.step.passed {
		for i, cur := range c.state.Cursors {
			from := Ref{Source: int32(i)}
			if i < len(c.step.from) {
				from.Seq, from.Index = c.step.from[i].Seq, c.step.from[i].Index
			}
			step.Passed = append(step.Passed, [2]Ref{from, {Source: int32(i), Seq: cur.Seq, Index: cur.Index}})
		}
	}
	c.step, c.prepared = prelude{}, false
	c.state = step.After.Clone()
	c.window[c.state.Step] = step.After
	c.emit(Publish{step})
	c.expect(step)
}
