// Package planner is the Planner role: the shell around the pure core in
// planner/plan.
//
// It owns the sessions with loaders and constructors, the job's log, and the
// answers to trainers that join or save their position. Every decision about
// order is the core's; the shell makes its effects durable first and sends them
// then. One goroutine owns all of its state and reads one inbox.
package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/feedback"
	"github.com/millrace-data/millrace/planner/mesh"
)

// Options configure a planner. Job and Address are required.
type Options struct {
	Job          *jobspec.Job
	Directory    string               // what the job's relative paths are relative to
	Address      string               // address to listen on, HOST:PORT or unix:PATH
	Advertise    string               // HOST or HOST:PORT that others reach it at; default: the address, or the machine\'s name
	Security     rpc.Security         //
	LogDir       string               // where the step log is kept; "" keeps none
	LogFS        checkpoint.FS        // file system of LogDir; default: the operating system's
	Loaders      int                  // loaders to wait for before anything is read; default 1
	Constructors int                  // constructors the DP ranks are spread over; default 1
	Prefetch     int                  // steps planned ahead; default: the job spec's
	AllowRoots   []string             // folders that sources which join are read from; default: the job's own
	Changes      []change.Change      // made before the first step is planned, unless the log has them
	StartWindow  time.Duration        // how long a rank that joins a job that runs without a token waits for the others; default DefaultStartWindow
	Log          *slog.Logger         // default: discard
	Registry     compile.Registry     // strategies and policies of the program
	Serving      func(address string) // called when the address is open; may be nil
}

func (o *Options) withDefaults() {
	o.Loaders = max(o.Loaders, 1)
	o.Constructors = max(o.Constructors, 1)
	if o.Prefetch == 0 {
		o.Prefetch = o.Job.Resources.Prefetch
	}
	if len(o.AllowRoots) == 0 {
		o.AllowRoots = o.Job.Roots()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

func (o *Options) validate() error {
	if o.Constructors > o.Job.Topology.DP {
		return fault.Userf("%d constructors for %d data-parallel ranks: each constructor serves at least one; use --constructors %d or fewer",
			o.Constructors, o.Job.Topology.DP, o.Job.Topology.DP)
	}
	return nil
}

// Planner is a running Planner. All fields below inbox belong to the goroutine
// that runs loop.
type Planner struct {
	pb.UnimplementedPlannerServer
	opts  Options
	inbox chan func()
	done  chan struct{} // closed when nothing is done any more
	busy  busy

	id           identity
	yaml         []byte            // the spec
	sources      []jobspec.Source  // the spec's, then those that joined
	limited      []bool            // by source
	entries      [][]byte          // of the sources that joined, or are about to
	unbound      map[string]bool   // entries that the operator's changes or the log have: they may be read from anywhere
	refused      error             // why the one that is about to join cannot
	journal      []plan.Change     // all changes so far that are in force or will be, as they were made
	made         []string          // all changes so far, those that were cancelled and those that did among them
	cancelled    map[string]bool   // those that were
	fresh        []change.Change   // cancelled, or cancelling, and not in the log yet
	origins      map[string]string // of the changes that stand in a file: where
	bans         []plan.Ban        // all bans, whether in force or not
	restored     []change.Change   // of the log, then of the options, until the core is there
	logged       int               // how many of them are the log's
	prepared     int               // how many of them are ready to be made
	joined       int               // how many of entries have joined
	positioned   bool              // a trainer said where the job goes on
	log          *checkpoint.Log
	found        map[fileName]*pb.FileFound // nil while it is looked for
	tree         *mesh.Tree                 // mesh of this generation
	remesh       *plan.Step                 // the first step for another mesh; nil if there is none
	core         *plan.Core
	generation   uint64
	moved        *pb.Moved           // how it began
	began        map[int64]beginning // by step, where ranks joined in it
	roster       roster
	failed       error
	last         <-chan time.Time // ends the planner, some time after what only a new start can mend; nil before
	loaders      []*loaderSession
	constructors []*constructorSession // by number; nil until it is there
	indexed      []*pb.SourceIndexed   // by source; nil until it is known
	steps        map[int64]*plan.Step  // published and not acked
	images       *stepImages           // of the step that was looked at last
	saved        map[int64]*savedToken // resume tokens that are being given out, by step
	wanted       map[wantKey]*loaderSession
	later        []plan.Effect // orders to loaders that wait until parts are sent
	floors       floors
	ended        int64  // first step that does not exist; -1 while unknown
	endReason    string // why, if not that the data is used up
	acks         map[uint32]*pb.Acked
	absence      absence
	joins        uint64        // so far
	waiting      []func() bool // questions that cannot be answered yet; true = answered
	ledger       []ledger      // by source
	data         data          // as loaders saw it
	measures     measurements
	started      time.Time
}

type wantKey struct {
	source int32
	seq    int64
}

// Run serves until ctx ends or the job fails for good. A failure of class fault.User
// does not end it: trainers are told what to mend, again and again, until someone stops
// the service. After any other, such as of the log's disk, all are told why for a
// moment, and Run returns it.
func Run(ctx context.Context, opts Options) error {
	opts.withDefaults()
	if err := opts.validate(); err != nil {
		return err
	}
	if opts.LogDir != "" { // the log is opened when all sources are indexed
		if err := checkpoint.Probe(opts.LogDir, checkpoint.Options{FS: opts.LogFS}); err != nil {
			return err
		}
	}
	p, err := newPlanner(opts)
	if err != nil {
		return err
	}
	register := func(s *grpc.Server) { pb.RegisterPlannerServer(s, p) }
	return rpc.Run(ctx, opts.Address, opts.Advertise, opts.Security, rpc.MaxControl, register, func(ctx context.Context, address string) error {
		if opts.Serving != nil {
			opts.Serving(address)
		}
		return p.run(ctx)
	})
}

func newPlanner(opts Options) (*Planner, error) {
	cfg, err := CoreConfig(opts.Job, opts.Registry)
	if err != nil {
		return nil, err
	}
	f := opts.Job.Mix.Feedback
	policy, err := opts.Registry.Policies.New(f.Policy, feedback.Options{Rate: float64(f.Rate) / 1000, Floor: float64(f.Floor) / 1000})
	if err != nil {
		return nil, err
	}
	p := &Planner{
		measures:     newMeasurements(policy),
		yaml:         opts.Job.YAML(),
		tree:         cfg.Mesh,
		opts:         opts,
		inbox:        make(chan func()),
		done:         make(chan struct{}),
		id:           identity{name: opts.Job.Name, spec: opts.Job.Identity(), sources: namesOf(opts.Job.Sources)},
		constructors: make([]*constructorSession, opts.Constructors),
		steps:        map[int64]*plan.Step{},
		saved:        map[int64]*savedToken{},
		wanted:       map[wantKey]*loaderSession{},
		origins:      map[string]string{},
		cancelled:    map[string]bool{},
		unbound:      map[string]bool{},
		ended:        -1,
		acks:         map[uint32]*pb.Acked{},
		found:        map[fileName]*pb.FileFound{},
		data:         data{room: sumLimit},
		roster:       newRoster(),
		started:      time.Now(),
	}
	for _, s := range opts.Job.Sources {
		p.addSource(s)
	}
	return p, nil
}

// loop owns the planner's state.
func (p *Planner) loop(ctx context.Context) error {
	for f := p.next(ctx); f != nil; f = p.next(ctx) {
		p.busy.since.Store(time.Now().UnixNano())
		f()
		p.answer()
		if p.busy.since.Store(0); p.core != nil {
			p.busy.step.Store(p.core.Planned())
		}
	}
	var err error
	if p.last != nil {
		err = p.failed
	}
	if p.log != nil {
		err = cmp.Or(err, p.log.Close())
	}
	return err
}

// next waits for what comes next; it returns nil at the end. While nothing does, the
// next step is drawn.
func (p *Planner) next(ctx context.Context) (f func()) {
	select {
	case f = <-p.inbox:
		return f
	case <-p.logStopped():
		return p.failByLog
	default:
		p.busy.since.Store(time.Now().UnixNano())
		p.drawAhead()
		p.busy.since.Store(0)
	}
	select {
	case f = <-p.inbox:
		return f
	case <-p.logStopped():
		return p.failByLog
	case <-p.last:
		return nil
	case <-ctx.Done():
		return nil
	}
}

// do runs f in the loop and waits for it.
func (p *Planner) do(ctx context.Context, f func()) error {
	ran := make(chan struct{})
	select {
	case p.inbox <- func() { f(); close(ran) }:
		select {
		case <-ran:
			return nil
		case <-p.done:
			return errClosing
		}
	case <-p.done:
		return errClosing
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errClosing = fault.Lostf("the planner is shutting down")

// ask runs f in the loop, and again after every change, until it reports true.
func (p *Planner) ask(ctx context.Context, f func() bool) error {
	answered := make(chan struct{})
	gone := false
	once := func() bool {
		if gone {
			return true
		}
		if f() {
			close(answered)
			return true
		}
		return false
	}
	if err := p.do(ctx, func() { gone = !p.await(once) }); err != nil || gone {
		return cmp.Or(err, errQuestions)
	}
	select {
	case <-answered:
		return nil
	case <-p.done:
		return errClosing
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.do(context.WithoutCancel(ctx), func() { gone = true }))
	}
}

// answer tries the open questions again, and once more if it found an answer: a
// join opens the way for changes.
func (p *Planner) answer() {
	for before := -1; len(p.waiting) != before; {
		before = len(p.waiting)
		waiting := p.waiting[:0]
		for _, once := range p.waiting {
			if !once() {
				waiting = append(waiting, once)
			}
		}
		p.waiting = waiting
	}
}

// start plans the first steps once all sources are indexed, those that joined in
// an earlier life of the log among them.
func (p *Planner) start() {
	if p.core != nil || p.failed != nil || slices.Contains(p.indexed[:p.base()], nil) {
		return
	}
	if err := p.openLog(); err != nil {
		p.fail(err)
		return
	}
	if ready, err := p.prepareChanges(); err != nil {
		p.fail(err)
		return
	} else if !ready {
		return // the answer of a loader comes back here
	}
	cfg, err := p.config()
	if err != nil {
		p.fail(err)
		return
	}
	p.opts.Log.Info("job starts", "job", p.id.name, "sources", len(p.sources), "changes", len(p.restored), "root", fmt.Sprintf("%x", cfg.Root[:6]))
	p.core = plan.New(cfg)
	state := plan.Start(p.base())
	if err = p.resume(&state, p.restored[:p.logged], byLog); err == nil {
		err = p.resume(&state, p.restored[p.logged:], byUser)
	}
	if err == nil {
		err = p.bury()
	}
	if err != nil {
		p.fail(err)
		return
	}
	p.apply(plan.Rewind{State: state, Digest: cfg.Root})
	p.readersChanged()
}

// openLog opens the log, once, and reads the changes of its earlier life.
func (p *Planner) openLog() error {
	if p.id.manifest != ([32]byte{}) {
		return nil
	}
	var manifests [][32]byte
	for _, x := range p.indexed[:p.base()] {
		manifests = append(manifests, [32]byte(x.Manifest))
	}
	p.id.manifest = batch.Combine(manifests)
	var err error
	if p.opts.LogDir != "" {
		err = p.readLog()
	}
	logged := len(p.restored)
	fresh := change.Without(p.opts.Changes, p.restored)
	change.Sort(fresh)
	return cmp.Or(err, p.sift(append(p.restored, fresh...), logged))
}

// readLog opens the log and reads the changes of its earlier life.
func (p *Planner) readLog() (err error) {
	if p.log, err = checkpoint.Open(p.opts.LogDir, checkpoint.Options{Identity: p.root(), Logger: p.opts.Log, FS: p.opts.LogFS}); err != nil {
		return err
	}
	texts, err := p.log.Changes()
	if err != nil {
		return err
	}
	p.restored, err = change.ParseAll(texts)
	return err
}

// config is the core's view of the job spec.
func (p *Planner) config() (plan.Config, error) {
	cfg, err := CoreConfig(p.opts.Job, p.opts.Registry)
	if err != nil {
		return cfg, err
	}
	for i := range p.base() {
		cfg.Sources = append(cfg.Sources, p.coreSource(i))
	}
	cfg.Root = p.root()
	cfg.Ahead = int64(p.opts.Prefetch)
	return cfg, nil
}

// apply gives the core an event and carries out what follows.
func (p *Planner) apply(ev plan.Event) {
	if p.core != nil && p.failed == nil {
		p.act(p.core.Apply(ev))
	}
}

// act carries out effects in order: to the log first, then to constructors, then to
// loaders.
func (p *Planner) act(effects []plan.Effect) {
	var orders []plan.Effect
	for _, e := range effects {
		switch e := e.(type) {
		case plan.Want, plan.Release:
			orders = append(orders, e)
		case plan.Publish:
			p.publish(e.Step)
		case plan.End:
			p.end(e)
		case plan.Digested:
			p.digested(e.Step, e.Digest)
		case plan.Fail:
			p.fail(e.Err)
		}
		if p.failed != nil {
			return
		}
	}
	p.order(orders)
}

// tell gives every constructor an order.
func (p *Planner) tell(order func(c *constructorSession) *pb.ConstructorOrder) {
	for _, c := range p.constructors {
		if c != nil {
			c.out.Put(order(c))
		}
	}
}

// digested notes the chain value after `step` steps in the log, beside the record of
// the last of them; it need not be durable, since it
// can be computed again.
func (p *Planner) digested(step int64, digest [32]byte) {
	if p.log == nil || !p.positioned {
		return
	}
	if err := p.log.SetDigest(step-1, digest); err != nil {
		p.fail(err)
	}
}
