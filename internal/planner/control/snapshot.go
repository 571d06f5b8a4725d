package control

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// Snapshot are the facts of a status, as they are between two events.
type Snapshot struct {
	Job          string
	State        string // starting, running, ended, failed
	Err          error  // why it failed
	WaitingFor   string // what holds the job up
	Holdup       Holdup // the same, with its cause
	Ranks        int    // that fetch batches, of all DP ranks; 0 until the job has started
	DPRanks      int
	Unserved     []uint32 // DP ranks that no constructor serves
	Starved      bool     // a step is to be planned, and blocks of it are being read
	Joined       bool     // a trainer has, so that it is known where the job goes on
	Generation   uint64
	Planned      int64
	Acked        int64
	End          int64 // -1 while unknown
	EndReason    string
	Digest       []byte // of DigestStep; nil if it is not known
	DigestStep   int64
	Fill         float64
	Carried      int
	Held         int
	Topology     string
	Calibration  string
	Changes      []string
	Sources      []SourceStatus
	Loaders      []Member
	Places       int     // shares of the reading
	Deal         [][]int // by source: the places that read it
	Promotions   int     // of shadows that took the place of a loader
	ReadAgain    int     // blocks that loaders were asked to read again, as others that had them were lost
	Constructors []Member
	Elsewhere    []Elsewhere // nodes whose ranks have been served from elsewhere for long
	Misplaced    []Misplaced // constructors on nodes that have no ranks
}

// Member is a loader or a constructor that is connected.
type Member struct {
	Session       Session
	Name, Address string
	Buckets       []uint32 // DP ranks that a constructor serves; a spare one serves none
	Suspect       string   // why others are asked in its place; "" if it is trusted
	Place         int      // of a loader: its share of the reading; -1: it is a shadow
	Workers       int      // of a loader: blocks that it reads at a time
	Blocks        int      // of a loader: blocks that it has, or reads, for steps to come
	Warmth        *Warmth  // of a shadow
}

// Warmth is what a shadow has ready for the moment when it takes a place.
type Warmth struct {
	Sources int      // that it has open
	Cold    []string // sources that it has not; one of an older version says nothing of any
	Copies  int      // blocks that it has beside other loaders
	Lacks   int      // blocks that it was asked to read beside others, and has not
}

// SourceStatus is the ledger of one source.
type SourceStatus struct {
	Name      string   `json:"name"`
	State     string   `json:"state,omitempty"` // paused, dropped; nothing for one that is drawn from
	Files     uint64   `json:"files"`
	Bytes     uint64   `json:"bytes"`
	Scheduled float64  `json:"scheduled_share"` // at the next step
	Realised  *float64 `json:"realised_share"`  // of all tokens (or samples) drawn so far; nil if that is not known
	Lag       float64  `json:"lag"`             // behind the schedule, in the mix's units
	Tokens    int64    `json:"tokens"`
	Samples   *int64   `json:"samples"` // drawn so far; nil if that is not known, as after the job went on from a token
	Drawn     int64    `json:"-"`       // samples drawn since the job last went on from a position
	Epoch     int64    `json:"epoch"`
	Filtered  uint64   `json:"filtered"`
	Dropped   uint64   `json:"dropped"`
	Empty     uint64   `json:"empty"`
	Skipped   uint64   `json:"skipped"`
	LastSkip  string   `json:"last_skip,omitempty"`

	Absent []AbsentField `json:"absent_fields,omitempty"`
	NoLoss *NoLoss       `json:"samples_without_loss,omitempty"` // nil: there are none
}

// Planned is the number of steps planned so far.
func (c *Core) Planned() int64 {
	if c.plan == nil {
		return 0
	}
	return c.plan.Planned()
}

// Plan is the core of steps, to be looked at only; nil until the job has started.
func (c *Core) Plan() *plan.Core { return c.plan }

// Root is the chain value before the first step of the job, once all sources of the
// spec are indexed; its log has it as its identity.
func (c *Core) Root() [32]byte { return c.root() }

// Snapshot says where the job is.
func (c *Core) Snapshot() Snapshot {
	s := Snapshot{
		Job: c.id.Name, State: "starting", Joined: c.job.positioned, Generation: c.job.generation,
		End: c.job.ended, EndReason: c.job.endReason, Changes: slices.Clone(c.journal.made),
	}
	s.Holdup = c.Holdup()
	s.WaitingFor = s.Holdup.Text
	if c.plan != nil {
		if c.progress(&s); s.State == "ended" {
			s.WaitingFor = "nothing: all ranks are done with the last step"
		}
		s.Starved = c.starved()
	}
	if c.failed != nil {
		s.State, s.Err = "failed", c.failed
	}
	for i := range c.sources.specs {
		s.Sources = append(s.Sources, c.sourceStatus(i))
	}
	c.shares(s.Sources)
	s.Promotions, s.ReadAgain = c.members.promotions, c.members.again
	asked, have := c.data.copies()
	blocks := c.blocks()
	s.Places, s.Deal = len(c.members.places), c.table()
	for _, l := range c.members.loaders {
		m := Member{Session: l.session, Name: l.name, Address: l.address, Place: l.place, Suspect: l.why, Workers: l.workers, Blocks: blocks[l]}
		if l.place == noPlace {
			m.Warmth = c.warmth(l, have[l], asked[l]-have[l])
		}
		s.Loaders = append(s.Loaders, m)
	}
	for _, m := range slices.Concat(c.members.present(), c.members.spares) {
		s.Constructors = append(s.Constructors, Member{Session: m.session, Name: m.name, Address: m.address, Buckets: m.buckets, Suspect: m.why})
	}
	s.Elsewhere, s.Misplaced = c.elsewhere(), c.allMisplaced()
	return s
}

// blocks counts by loader the blocks that it has for others, or was asked for.
func (c *Core) blocks() map[*loader]int {
	n := map[*loader]int{}
	for i := range c.data.sources {
		for _, x := range c.data.sources[i].blocks {
			n[x.by]++
		}
	}
	for _, l := range c.members.wanted {
		n[l]++
	}
	return n
}

// warmth is what a shadow has ready.
func (c *Core) warmth(s *loader, copies, lacks int) *Warmth {
	w := &Warmth{Copies: copies, Lacks: lacks}
	for i, x := range c.sources.indexed {
		switch {
		case s.isOpen(i):
			w.Sources++
		case x != nil:
			w.Cold = append(w.Cold, c.sources.specs[i].Name)
		}
	}
	return w
}

// Silent are the constructors that serve ranks and say nothing.
func (c *Core) Silent() (all []Member) {
	for _, m := range c.members.present() {
		if m.silent {
			all = append(all, Member{Session: m.session, Name: m.name, Address: m.address})
		}
	}
	return all
}

// starved says whether a step is to be planned, and blocks of it are read.
func (c *Core) starved() bool {
	return c.plan != nil && c.plan.Planned()-c.plan.Acked() < c.cfg.Plan.Ahead && len(c.members.wanted) > 0
}

// Acked is the step before which all ranks are done with all steps.
func (c *Core) Acked() int64 {
	if c.plan == nil {
		return 0
	}
	return c.plan.Acked()
}

// Reads is the session of the loader that Holdup names; 0 if that names none.
func (c *Core) Reads() Session {
	if c.failed != nil || c.missingMember() != "" || !c.starved() {
		return 0
	}
	if l := c.members.wanted[c.firstWanted()]; l != nil {
		return l.session
	}
	return 0
}

// missingMember names what has to be there before steps are planned; "" if all is.
func (c *Core) missingMember() string {
	n := c.members.primaries()
	for i, x := range c.sources.indexed {
		switch {
		case n < c.cfg.Loaders && c.plan == nil:
			return fmt.Sprintf("loaders: %d of %d are connected", n, c.cfg.Loaders)
		case x == nil:
			return fmt.Sprintf("source %q to be indexed", c.sources.specs[i].Name)
		}
	}
	for i, m := range c.members.constructors {
		if m == nil && c.members.stands[i].in == nil {
			return fmt.Sprintf("constructor %d of %d to connect", i, len(c.members.constructors))
		}
	}
	if c.plan == nil {
		return "the log to be opened"
	}
	return ""
}

// missingLoader names the loader that has to be there, or to speak again, before anything is read or handed out; "" if one
// is there and speaks: it takes what others were to do.
func (c *Core) missingLoader() string {
	all := c.members.loaders
	if len(all) == 0 {
		return fmt.Sprintf("loader 0 of %d to connect", c.cfg.Loaders)
	}
	for _, l := range all {
		if !l.silent {
			return ""
		}
	}
	name := all[0].name
	if l := c.members.loader(c.Reads()); l != nil {
		name = l.name
	}
	if len(all) == 1 {
		return "word of loader " + name
	}
	return fmt.Sprintf("word of one of %d loaders, such as %s", len(all), name)
}

// firstWanted is the first block that is being read; there is one.
func (c *Core) firstWanted() block {
	var first *block
	for b := range c.members.wanted {
		if first == nil || compareBlocks(b, *first) < 0 {
			first = &b
		}
	}
	return *first
}

// unread names the first block that is being read.
func (c *Core) unread() string {
	first := c.firstWanted()
	by := "a loader; none is connected"
	if l := c.members.wanted[first]; l != nil {
		by = l.name
	}
	return fmt.Sprintf("block %d of source %q to be read by %s", first.seq, c.sources.specs[first.source].Name, by)
}

// progress fills in what the core of steps knows.
func (c *Core) progress(s *Snapshot) {
	s.Topology = c.job.tree.Canonical()
	s.Ranks, s.DPRanks, s.Unserved = c.fetchers(), c.job.tree.Sizes().DP, c.unserved()
	s.Calibration = c.reports.calibration()
	s.State, s.Planned, s.Acked = "running", c.plan.Planned(), c.plan.Acked()
	if c.job.ended >= 0 && s.Acked >= c.job.ended {
		s.State = "ended"
	}
	s.DigestStep, _ = c.plan.Missing()
	if d, ok := c.plan.Digest(s.DigestStep); ok {
		s.Digest = d[:]
	}
	if state, ok := c.plan.State(s.Planned); ok {
		s.Carried, s.Held = len(state.Carry), len(state.Held)
	}
	if last := c.job.steps[s.Planned-1]; last != nil {
		s.Fill = float64(last.Filled) / float64(last.Shape.Rows*int(last.Shape.SequenceLength))
	}
}

// unserved are the DP ranks whose constructor is not there.
func (c *Core) unserved() (all []uint32) {
	for dp := range uint32(c.job.tree.Sizes().DP) {
		if len(c.members.constructors) > 0 && c.constructorOf(dp) == nil {
			all = append(all, dp)
		}
	}
	return all
}

func (c *Core) sourceStatus(i int) SourceStatus {
	led := &c.sources.ledgers[i]
	s := SourceStatus{
		Name:     c.sources.specs[i].Name,
		Filtered: uint64(led.filtered), Dropped: uint64(led.dropped), Empty: uint64(led.empty), Skipped: uint64(led.skipped),
		Absent: led.fields.list(), NoLoss: c.NoLoss(i),
	}
	if x := c.sources.indexed[i]; x != nil {
		s.Files, s.Bytes = x.Files, x.Bytes
	}
	if led.lastSkip != nil {
		s.LastSkip = led.lastSkip.String()
	}
	if c.plan == nil {
		return s
	}
	if state, ok := c.plan.State(c.plan.Planned()); ok && i < len(state.Cursors) {
		cur := state.Cursors[i]
		s.State = state.Settings.StateOf(int32(i))
		s.Tokens = cur.Tokens
		if s.Drawn = cur.Samples; !c.job.uncounted {
			s.Samples = &cur.Samples
		}
		s.Lag = float64(cur.Deficit) / 4096
		s.Epoch = cur.Seq / max(int64(c.sources.indexed[i].Blocks), 1)
	}
	return s
}

// shares fills in what each source should have and has of the whole, as far as that is known.
func (c *Core) shares(sources []SourceStatus) {
	if c.plan == nil {
		return
	}
	count := func(s *SourceStatus) *int64 {
		if c.cfg.Job.Mix.Unit == "samples" {
			return s.Samples
		}
		return &s.Tokens
	}
	total, known := int64(0), true
	for i := range sources {
		n := count(&sources[i])
		if known = known && n != nil; known {
			total += *n
		}
	}
	for i, share := range c.plan.Shares() {
		sources[i].Scheduled = float64(share) / (1 << 32)
		if known {
			realised := float64(*count(&sources[i])) / float64(max(total, 1))
			sources[i].Realised = &realised
		}
	}
}

// whyWithheld says in words why there is no step though there is data.
func (c *Core) whyWithheld(e plan.End) string {
	if len(e.Withheld) == 0 {
		return ""
	}
	var names []string
	for _, i := range e.Withheld {
		names = append(names, c.sources.specs[i].Name)
	}
	return fmt.Sprintf("ended at step %d: all sources with weight are paused or dropped (%s): to go on, start from a token of a step before, "+
		"with --changes that by step %d resume one of them or give weight to another", e.Step, strings.Join(names, ", "), e.Step)
}

// tellTime is how long everyone hears why a job failed for good, before it ends: as long as
// ranks that have batches take to ask for the next.
const tellTime Millis = 5000

// fail ends the job: from now on everybody hears err. What the user can mend is
// said until he stops the service; anything else ends it. What waits for the log is never
// sent.
func (c *Core) fail(err error) {
	if c.failed != nil {
		return
	}
	c.failed = err
	c.flushEntered()
	unsent := c.out.held
	c.out.held, c.out.barrier = nil, c.out.persisted
	class := fault.ClassOf(err)
	c.note(Error, "job failed", "class", class.String(), "err", err)
	c.emit(Failing{err})
	for _, m := range c.members.present() {
		c.emit(Failure{m.session, err})
	}
	for _, h := range unsent {
		if a, ok := h.Effect.(Answer); ok {
			c.emit(Answer{ID: a.ID, Err: err, Final: true})
		}
	}
	c.raise(onTick) // all questions are answered
	if class != fault.User {
		c.stopAt = c.now + tellTime
	}
}

// logStopped ends the job, and the planner whoever is at fault: it can never go on.
func (c *Core) logStopped(err error) {
	c.fail(err)
	c.stopAt = c.now + tellTime
}
