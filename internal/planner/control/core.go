package control

import (
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/feedback"
	"github.com/millrace-data/millrace/planner/mesh"
)

// Config is the job as the core sees it. It is read-only.
type Config struct {
	Job          *jobspec.Job
	Plan         plan.Config   // what the job spec alone says: without sources and root
	Loaders      int           // to wait for before anything is read; at least 1
	Shadows      int           // loaders beside them that stand by for one that is lost
	Deal         [][]int       // by source of the job spec: the places that read it, rising; nil, or none of a source: sources are dealt in turn
	Hot          bool          // shadows read what those they stand by for read
	Constructors int           // that the DP ranks are spread over; 0 in a shell without trainers
	Mirrored     bool          // the log has a mirror, from which another planner may go on
	NodeRanks    int           // trainer ranks of a node, whose constructor serves the DP ranks that begin there; 0: constructors take DP ranks in turn
	AllowRoots   jobspec.Roots // what sources which join are read from
	Changes      []change.Change
	Absence      Millis                             // that a constructor may be away before another one serves its ranks; 0: for ever
	Resumes      bool                               // the log has steps: members of an earlier life may come back
	Epoch        uint64                             // of this planner; 0 if it has none
	Retain       int64                              // steps that the log keeps below those that it is needed for; 0: all
	TrimEvery    int64                              // steps that the log lets go of at a time; positive if Retain is
	Window       Millis                             // how long a rank without a token waits for the others; positive
	Suspect      Millis                             // how long a member says nothing before it is Silent; 0: the default
	GiveUp       Millis                             // how long after it fell silent a constructor's session goes on; 0: the default
	Policy       feedback.Policy                    // nil: none
	Listing      func(data []byte) (Listing, error) // reads Indexed.Listing
}

// Core is the state machine.
type Core struct {
	cfg     Config
	id      token.Job
	now     Millis
	plan    *plan.Core // nil until all sources are known and the log is open
	out     outbox
	log     steplog
	members members
	sources sources
	journal journal
	job     job
	roster  roster
	unheard unheard
	acks    acks
	asks    asks
	data    data
	reports measurements
	absence absence
	pace    pace
	take    takeover
	failed  error  // why the job failed; nil while it has not
	stopAt  Millis // when a job that failed ends; 0: not by itself
}

// job is where the job is.
type job struct {
	positioned bool // a trainer said where the job goes on
	uncounted  bool // it went on from a position after the first: how many samples were drawn before is not known
	generation uint64
	history    []Generation          // those so far, this one the last; empty before the first trainer said where the job goes on
	moved      *Moved                // how it began
	began      map[int64]beginning   // by step, where ranks joined in it
	reached    int64                 // steps that generations before it planned, at most: ranks that go on may have them
	tree       *mesh.Tree            // mesh of this generation
	remesh     *plan.Step            // the first step for another mesh; nil if there is none
	steps      map[int64]*plan.Step  // published and not acknowledged
	saved      map[int64]*savedToken // resume tokens that are being given out, by step
	ended      int64                 // first step that does not exist; -1 while unknown
	endReason  string                // why, if not that the data is used up
}

// New returns the core of a job with no members yet.
func New(cfg Config) *Core {
	c := &Core{
		cfg:     cfg,
		id:      token.Job{Name: cfg.Job.Name, Identity: cfg.Job.Identity()},
		members: newMembers(cfg.Constructors),
		sources: newSources(),
		roster:  newRoster(),
		acks:    newAcks(),
		asks:    newAsks(),
		data:    data{room: sumLimit},
		reports: newMeasurements(cfg.Policy),
		take:    takeover{known: -1},
		job:     job{tree: cfg.Plan.Mesh, steps: map[int64]*plan.Step{}, saved: map[int64]*savedToken{}, ended: -1},
	}
	c.members.table = cfg.Deal
	c.roster.joins = cfg.Epoch << epochBits
	for _, s := range cfg.Job.Sources {
		c.id.Sources = append(c.id.Sources, token.Source{Name: s.Name, Limited: s.Limit > 0})
		c.addSource(s)
	}
	return c
}

// Apply takes one event and returns what has to be done, in order.
func (c *Core) Apply(ev Event) []Effect {
	c.out.now = nil
	if ev, ok := ev.(LogStopped); ok && c.cfg.Mirrored {
		return []Effect{Stop(ev)} // as if it were killed: all keep what they have, and look for another planner
	}
	c.countWork()
	if c.failed == nil {
		c.apply(ev)
		c.advance()
	} else {
		c.applyFailed(ev)
	}
	c.answer()
	c.listBans()
	return c.out.now
}

func (c *Core) apply(ev Event) {
	switch ev := ev.(type) {
	case Tick:
		c.tick(ev.Now)
	case Idle:
		if c.plan != nil {
			c.act(c.plan.Prepare())
		}
	case Ask:
		c.ask(ev)
	case Withdraw:
		c.withdraw(ev.ID)
	case Persisted:
		c.persisted(ev)
	case LogOpened:
		c.logOpened(ev)
	case DigestRead:
		c.digestRead(ev)
	case LogRead:
		c.logRead(ev)
	case LogStopped:
		c.logStopped(ev.Err)
	case Begin:
		c.begin(ev)
	case Failed:
		c.fail(ev.Err)
	default:
		c.applyMember(ev)
	}
}

// applyMember takes what loaders and constructors say.
func (c *Core) applyMember(ev Event) {
	switch ev := ev.(type) {
	case LoaderJoined:
		c.addLoader(ev)
	case SourceOpened:
		c.sourceOpened(ev)
	case LoaderLeft:
		c.removeLoader(ev)
	case Redeal:
		c.redeal(ev)
	case ConstructorJoined:
		c.addConstructor(ev)
	case ConstructorLeft:
		c.removeConstructor(ev)
	case Silent:
		c.silentMember(ev)
	case Heard:
		c.heardMember(ev)
	case Quiet:
		c.quietMember(ev)
	case Indexed:
		c.sourceIndexed(ev)
	case BlockRead:
		c.blockRead(ev)
	case FileFound:
		c.fileFound(ev)
	case LoaderFailed:
		c.loaderFailed(ev)
	case Assembled:
		if ev.Generation == c.job.generation {
			c.tell(ev.Rows)
		}
	case Acked:
		c.ackedBy(ev)
	case Lag:
		c.lags(ev)
	case Admitted:
		c.admitted(ev)
	case Restarted:
		c.restarted(ev)
	case Done:
		c.done(ev.Step)
	}
}

// applyFailed tells those who come after the job has failed why it did. Nothing else
// happens any more.
func (c *Core) applyFailed(ev Event) {
	switch ev := ev.(type) {
	case Tick:
		if c.now = ev.Now; c.stopAt > 0 && c.now >= c.stopAt {
			c.stopAt = 0
			c.emit(Stop{c.failed})
		}
	case Ask:
		c.emit(Answer{ID: ev.ID, Err: c.failed, Final: true})
	case LoaderLeft:
		c.members.dropLoader(ev.Session)
	case ConstructorJoined:
		c.addConstructor(ev)
	case ConstructorLeft:
		if m := c.members.dropConstructor(ev.Session); m != nil {
			c.free(m)
		} else {
			c.dropSpare(ev)
		}
	}
}

// tell gives the core of steps an event and carries out what follows.
func (c *Core) tell(ev plan.Event) {
	if c.plan != nil && c.failed == nil {
		if r, ok := ev.(plan.Rewind); ok {
			c.job.uncounted = r.State.Step > 0
		}
		c.act(c.plan.Apply(ev))
	}
}

// act carries out effects in order: to the log first, then to constructors, then to
// loaders.
func (c *Core) act(effects []plan.Effect) {
	var released []plan.Release
	for _, e := range effects {
		switch e := e.(type) {
		case plan.Release:
			released = append(released, e)
		case plan.Publish:
			c.publish(e.Step)
		case plan.End:
			c.end(e)
		case plan.Digested:
			c.digested(e.Step, e.Digest)
		case plan.Fail:
			c.fail(e.Err)
		}
		if c.failed != nil {
			return
		}
	}
	for _, e := range effects {
		if w, ok := e.(plan.Want); ok {
			c.want(block{w.Source, w.Seq})
		}
	}
	if len(released) > 0 {
		c.release(released)
	}
}

// publish makes a plan durable and sends each constructor its part. As long as no
// trainer said where the job goes on, what is planned is a guess and not logged.
func (c *Core) publish(s *plan.Step) {
	moves := c.job.remesh == nil && !s.Mesh.Equal(c.job.tree)
	if moves {
		c.job.remesh = s
	}
	if c.job.positioned {
		c.persist(c.record(s))
	}
	c.job.steps[s.Step] = s
	c.raise(onPlanned)
	var to []*constructor
	if c.job.remesh == nil {
		to = c.members.lacking(s.Step)
	}
	c.deliver(s, to)
	c.noteWork(s)
	if moves {
		c.note(Info, "the topology changes", "step", s.Step, "to", s.Mesh.Canonical())
		c.sendEnd()
	}
}

// deliver has a step cut for constructors and sent to them.
func (c *Core) deliver(s *plan.Step, to []*constructor) {
	cut := Cut{Generation: c.job.generation, Step: s}
	for _, m := range to {
		cut.For = append(cut.For, Part{m.session, m.buckets})
	}
	c.emit(cut)
	for _, m := range to {
		c.send(Deliver{m.session, s.Step})
	}
}

// record is the record of a step.
func (c *Core) record(s *plan.Step) AppendStep {
	before, _ := c.plan.State(s.Step) // no step is acknowledged before it is recorded
	digest, _ := c.plan.Digest(s.Step)
	return AppendStep{Step: s, Before: before, Digest: digest, Skips: c.skipsOf(before, s)}
}

// digested notes the chain value after step steps.
func (c *Core) digested(step int64, digest [32]byte) {
	c.raise(onDigest)
	if c.job.positioned {
		c.persist(SetDigest{step - 1, digest})
	}
}

// end takes note of the end: the job has no step e.Step, and none after it.
func (c *Core) end(e plan.End) {
	c.job.ended = e.Step
	c.emit(Ended{e.Step})
	c.note(Info, "end of data", "step", e.Step)
	if c.job.endReason = c.whyWithheld(e); c.job.endReason != "" {
		c.note(Warn, "the data ends early", "step", e.Step, "reason", c.job.endReason)
	}
	if c.job.remesh == nil {
		c.sendEnd()
	}
}

// sendEnd tells all constructors where the data ends, but those that have not heard where the
// job goes on: they hear it then.
func (c *Core) sendEnd() {
	for _, m := range c.members.present() {
		if m.held == nil {
			c.send(c.endOfData(m))
		}
	}
}

// endOfData says where the data ends, for the ranks of this mesh at least.
func (c *Core) endOfData(m *constructor) Effect {
	end := EndOfData{To: m.session, Generation: c.job.generation, Step: c.job.ended}
	if s := c.job.remesh; s != nil {
		end.Step, end.Topology = s.Step, s.Mesh.Canonical()
	}
	return end
}

// planConfig is the configuration of the core of steps.
func (c *Core) planConfig() plan.Config {
	cfg := c.cfg.Plan
	cfg.Sources = nil
	for i := range c.base() {
		cfg.Sources = append(cfg.Sources, c.planSource(i))
	}
	cfg.Root = c.root()
	return cfg
}

// scratch is a core of steps to understand changes by: it plans nothing.
func (c *Core) scratch() *plan.Core {
	cfg := c.planConfig()
	cfg.Fits = func(shape plan.Shape, tree *mesh.Tree) error {
		return c.reshaped(int(shape.SequenceLength), shape.Rows, tree)
	}
	return plan.New(cfg)
}

// start plans the first steps once all sources are indexed and the log is open, those
// among them that joined in an earlier life of the log.
func (c *Core) start() {
	if c.take.read != nil && c.failed == nil {
		c.arrive()
		return
	}
	if c.plan != nil || c.failed != nil || slices.Contains(c.sources.indexed[:c.base()], nil) {
		return
	}
	if c.id.Manifest == ([32]byte{}) {
		var manifests [][32]byte
		for _, x := range c.sources.indexed[:c.base()] {
			manifests = append(manifests, [32]byte(x.Manifest))
		}
		c.id.Manifest = batch.Combine(manifests)
		c.emit(OpenLog{c.root(), c.id, c.planConfig()})
		return
	}
	switch {
	case c.log.begin != nil:
		c.startAt()
	case c.log.opened:
		c.startLogged()
	}
}

// startLogged starts the job with the changes of the log and of the options: where an
// earlier life of the log stopped, or at its first step.
func (c *Core) startLogged() {
	if c.take.reading {
		return
	}
	ready, err := c.prepareChanges()
	if err != nil {
		c.fail(err)
		return
	}
	if !ready {
		return // the answer of a loader comes back here
	}
	c.note(Info, "job starts", "sources", len(c.sources.specs), "changes", len(c.journal.restored), "root", fmt.Sprintf("%x", c.root())[:12])
	state, restored, logged := plan.Start(c.base()), c.journal.restored, c.journal.logged
	if err = c.resume(&state, restored[:logged], byLog); err == nil {
		err = c.resume(&state, restored[logged:], byUser)
	}
	if err != nil {
		c.fail(err)
		return
	}
	c.persistCancelled()
	if c.take.state = state; c.take.begun {
		c.readLog()
		return
	}
	c.startFirst()
}

// startFirst starts the job at its first step.
func (c *Core) startFirst() {
	c.plan = c.scratch()
	if c.cfg.Resumes {
		c.placementChanged()
	}
	c.riseAbove()
	c.run(c.take.state, c.root())
}

// run has the core of steps plan from a position.
func (c *Core) run(state plan.State, digest [32]byte) {
	c.raise(onMembers)
	c.tell(plan.Rewind{State: state, Digest: digest})
	if m := &c.members; slices.ContainsFunc(m.places, func(p place) bool { return !p.used }) && len(m.shadows()) > 0 {
		c.rearrange() // those who had these places did not come
	}
	c.readersChanged()
}

// root is the chain value before the first step.
func (c *Core) root() [32]byte { return batch.Root(c.id.Identity, c.id.Manifest) }

func (c *Core) note(level Level, text string, attrs ...any) {
	c.emit(Note{level, text, append([]any{"job", c.id.Name}, attrs...)})
}
