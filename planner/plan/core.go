// Package plan is the pure core of the planner: events go in, effects come out.
//
// It draws the samples of each step by the mix, packs them into rows, and runs
// ahead of the slowest trainer under a limit. It owns every decision about order
// and nothing else: no clock, disk, network, goroutine or global randomness is
// inside, and the arrival order of events changes no plan. planner is the shell
// around it: it makes effects durable first and sends them then.
//
// Apply is not safe for concurrent use; one goroutine owns a Core.
package plan

import (
	"fmt"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/mix"
)

// carryLimit bounds the samples carried over from one step to the next: they
// travel in every resume token, at about 5 bytes each.
const carryLimit = 32

// Source is what the core knows of a source.
type Source struct {
	Name   string
	Blocks int64 // blocks in one epoch; positive
	Limit  int64 // samples in one epoch at most; 0 = no limit
}

// Config is the job as the core sees it. It is read-only.
type Config struct {
	Sources        []Source
	Schedule       mix.Schedule
	CountSamples   bool  // the mix counts samples, not tokens
	Epochs         int64 // limit for every source; 0 = none
	Renormalize    bool  // at the limit of one source go on with the others; else stop
	SequenceLength int32 // tokens per row
	Rows           int   // rows per step
	Packing        bool  // several samples per row
	Ahead          int64 // steps planned ahead of the slowest trainer; positive
	Window         int   // samples of each source to know ahead; positive
	Root           [32]byte
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
	Step    int64 // steps done
	Cursors []Cursor
	Carry   []Ref // drawn but not delivered, the longest first
}

// Start is the position before the first step.
func Start(sources int) State { return State{Cursors: make([]Cursor, sources)} }

// Clone copies a state.
func (s State) Clone() State {
	s.Cursors = append([]Cursor(nil), s.Cursors...)
	s.Carry = append([]Ref(nil), s.Carry...)
	return s
}

// Step is the plan of one step.
type Step struct {
	Step    int64
	Samples []Ref   // row by row
	Rows    []int32 // samples in each row; rows without any are padding only
	Drawn   []int64 // tokens drawn from each source in this step
	Filled  int64   // tokens in all rows
	After   State   // the position after this step
}

// Event is something that happened outside: one of BlockRead, Acked,
// Assembled, Rewind.
type Event interface{ event() }

// BlockRead reports the samples of a block that was wanted.
type BlockRead struct {
	Source  int32
	Seq     int64
	Lengths []int32 // tokens of each sample, in order
}

// Acked reports that all trainers are done with all steps before Step.
type Acked struct{ Step int64 }

// Assembled reports the digests of some rows of a step.
type Assembled struct {
	Step    int64
	Rows    []uint32
	Digests [][32]byte
}

// Rewind moves the job to another position: that of a resume token. Digest is
// the chain value there.
type Rewind struct {
	State  State
	Digest [32]byte
}

func (BlockRead) event() {}
func (Acked) event()     {}
func (Assembled) event() {}
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

// End says that there is no step Step and none after it.
type End struct{ Step int64 }

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
	state   State // after the last planned step
	acked   int64
	window  map[int64]State // positions from acked to planned
	sources []source
	digests digests
	ended   int64 // the step that does not exist; -1 while unknown
	failed  error
	packer  balance.Packer
	effects []Effect
	pending *draft // the next step as far as it could be drawn; nil if there is none
}

// source is what is known of a source's blocks.
type source struct {
	blocks   map[int64][]int32 // lengths by block
	wanted   map[int64]bool
	released int64 // blocks before it were let go
	read     int64 // blocks and samples read so far, for the look-ahead
	samples  int64
	pace     int64 // samples drawn in the last step
}

// New returns a core at the start of the job. Apply(Rewind) moves it.
func New(cfg Config) *Core {
	c := &Core{cfg: cfg}
	c.reset(Start(len(cfg.Sources)), cfg.Root)
	return c
}

func (c *Core) reset(s State, digest [32]byte) {
	c.state, c.acked, c.ended = s.Clone(), s.Step, -1
	c.window = map[int64]State{s.Step: s.Clone()}
	c.sources = make([]source, len(c.cfg.Sources))
	for i := range c.sources {
		c.sources[i] = source{blocks: map[int64][]int32{}, wanted: map[int64]bool{}}
	}
	c.digests = newDigests(s.Step, digest, c.cfg.Rows)
	c.pending = nil
}

// Start plans as far as it can without any event.
func (c *Core) Start() []Effect { return c.drain(c.advance) }

// Apply takes one event and returns what has to be done, in order. After a Fail
// it does nothing.
func (c *Core) Apply(ev Event) []Effect {
	return c.drain(func() {
		switch ev := ev.(type) {
		case BlockRead:
			c.blockRead(ev)
		case Acked:
			c.ack(ev.Step)
		case Assembled:
			c.assembled(ev)
		case Rewind:
			c.reset(ev.State, ev.Digest)
		}
		c.advance()
	})
}

func (c *Core) drain(work func()) []Effect {
	c.effects = nil
	if c.failed == nil {
		work()
	}
	return c.effects
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

func (c *Core) blockRead(ev BlockRead) {
	s := &c.sources[ev.Source]
	if !s.wanted[ev.Seq] {
		return // of another generation, or told twice
	}
	delete(s.wanted, ev.Seq)
	for i, n := range ev.Lengths {
		if n < 1 || n > c.cfg.SequenceLength {
			c.fail(fmt.Errorf("source %q, block %d: sample %d has %d tokens, which cannot be (1 to %d)",
				c.cfg.Sources[ev.Source].Name, ev.Seq, i, n, c.cfg.SequenceLength))
			return
		}
	}
	s.blocks[ev.Seq] = ev.Lengths
	s.read++
	s.samples += int64(len(ev.Lengths))
}

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

// release lets go of the blocks that no position from the acked one on needs.
func (c *Core) release() {
	low := make([]int64, len(c.sources))
	at := c.window[c.acked]
	for i, cur := range at.Cursors {
		low[i] = cur.Seq
	}
	for _, r := range at.Carry {
		low[r.Source] = min(low[r.Source], r.Seq)
	}
	for i := range c.sources {
		s := &c.sources[i]
		if low[i] <= s.released {
			continue
		}
		for seq := range s.blocks {
			if seq < low[i] {
				delete(s.blocks, seq)
			}
		}
		s.released = low[i]
		c.emit(Release{int32(i), low[i]})
	}
}

func (c *Core) assembled(ev Assembled) {
	if err := c.digests.add(ev); err != nil {
		c.fail(err)
		return
	}
	for {
		step, d, ok := c.digests.next()
		if !ok {
			return
		}
		c.emit(Digested{step, d})
	}
}

// advance plans steps while the limit allows it and the samples are known.
func (c *Core) advance() {
	for c.failed == nil && c.ended < 0 && c.state.Step-c.acked < c.cfg.Ahead {
		step, end := c.next()
		if end {
			c.ended = c.state.Step
			c.emit(End{c.ended})
			return
		}
		if step == nil {
			break
		}
		for i, cur := range step.After.Cursors {
			c.sources[i].pace = cur.Samples - c.state.Cursors[i].Samples
		}
		c.state = step.After.Clone()
		c.window[c.state.Step] = step.After
		c.emit(Publish{step})
	}
	if c.failed == nil && c.ended < 0 {
		c.lookAhead()
	}
}

// want asks for a block once.
func (c *Core) want(src int32, seq int64) {
	s := &c.sources[src]
	if _, known := s.blocks[seq]; known || s.wanted[seq] {
		return
	}
	s.wanted[seq] = true
	c.emit(Want{src, seq})
}

// wantLimit bounds the blocks of one source that are being read at a time: two
// keep a loader busy while one is on its way, four leave room for small ones.
const wantLimit = 4

// lookAhead asks for blocks until Window samples, or those of the steps that are
// planned ahead twice over, of each active source are
// known or on their way, at most an epoch (or 64 blocks) ahead.
func (c *Core) lookAhead() {
	for i := range c.sources {
		if c.cfg.Schedule.Active(i, c.state.Step, c.state.Step+2*c.cfg.Ahead) {
			c.lookAheadIn(int32(i))
		}
	}
}

func (c *Core) lookAheadIn(i int32) {
	s, src, cur := &c.sources[i], c.cfg.Sources[i], c.state.Cursors[i]
	usual := int64(c.cfg.Window) // samples of a block that is not known
	if s.read > 0 {
		usual = max(s.samples/s.read, 1)
	}
	end := cur.Seq + max(src.Blocks, 64)
	if c.cfg.Epochs > 0 {
		end = min(end, c.cfg.Epochs*src.Blocks)
	}
	left := src.Limit - cur.InEpoch // samples until the epoch's limit, if there is one
	known := -int64(cur.Index)
	// A source that gives many samples to a step needs a block read while the
	// steps planned ahead use up the one before it.
	enough := max(int64(c.cfg.Window), 2*c.cfg.Ahead*s.pace)
	for seq := cur.Seq; known < enough && seq < end; {
		if src.Limit > 0 && left <= 0 {
			seq, left = (seq/src.Blocks+1)*src.Blocks, src.Limit
			continue
		}
		n := usual
		if lengths, ok := s.blocks[seq]; ok {
			n = int64(len(lengths))
		} else if !s.wanted[seq] && len(s.wanted) >= wantLimit {
			break
		} else {
			c.want(i, seq)
		}
		known += n
		left -= n
		if seq++; seq%src.Blocks == 0 {
			left = src.Limit
		}
	}
}

// errBarren says that a source has records but none of them gives a sample.
func (c *Core) errBarren(src int32) error {
	return fault.Userf("source %q gave no sample in a whole epoch: every record was filtered out, dropped as too long, or empty (as one without the column that `text` names is); check its transforms",
		c.cfg.Sources[src].Name)
}
