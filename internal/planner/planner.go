// Package planner is the Planner role: the shell around the pure cores in
// planner/control and planner/plan.
//
// It owns the sessions with loaders and constructors, the job's log and the answers to
// trainers, as far as bytes, clocks and streams go: what they say becomes events of the
// core, and the core's effects become orders, answers and writes. It decides nothing
// about order or protocol. One goroutine owns the core and reads one inbox; another one
// writes the log.
package planner

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/failpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/cut"
	"github.com/millrace-data/millrace/internal/planner/scaling"
	"github.com/millrace-data/millrace/internal/planner/status"
	"github.com/millrace-data/millrace/internal/planner/steplog"
	"github.com/millrace-data/millrace/internal/planner/wire"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/telemetry"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/feedback"
)

// DefaultStartWindow is how long a rank without a token waits for the others: those that
// are started together join within seconds of each other, or have long files to read first.
const DefaultStartWindow = 30 * time.Second

// DefaultAbsence is long enough for a process that is started again at once, and for a
// connection that broke, and far shorter than what ranks have read ahead.
const DefaultAbsence = time.Second

// Options configure a planner. Job and Address are required.
type Options struct {
	Job          *jobspec.Job
	Address      string                    // address to listen on, HOST:PORT or unix:PATH
	Advertise    string                    // HOST or HOST:PORT that others reach it at; default: the address, or the machine's name
	Security     rpc.Security              //
	LogDir       string                    // where the step log is kept; "" keeps none
	Standby      bool                      // serve when there is a log that no other planner has open, or whose mirror none renews any more, not before
	LogMirror    string                    // URL of the object store (object.Open) with a second copy of the log; "" keeps none
	MirrorProved bool                      // a planner before this one wrote to LogMirror with the same credentials: where access is denied now, that is tried again
	LogRetain    int                       // steps that the log keeps below those that are needed to go on, at least checkpoint.TrimEvery; 0: all
	LogFS        checkpoint.FS             // file system of LogDir; default: the operating system's
	KeyFrame     func(step int64) bool     // whether the log has a key frame of a step, which changes no byte of a batch; default: by the time that replaying takes
	Loaders      int                       // loaders to wait for before anything is read; default 1
	Shadows      int                       // loaders beside them that stand by for one that is lost
	HotShadows   bool                      // shadows read what those they stand by for read; else they only have the sources open
	Deal         [][]int                   // by source of the job spec: the places of the loaders that read it, rising (package sizing); default: sources are dealt in turn
	Constructors int                       // constructors the DP ranks are spread over; default 1, or one for each node of RanksPerNode
	RanksPerNode int                       // trainer ranks of a node; constructors that say on which they are serve the DP ranks that begin there. Default 0: of no account
	Prefetch     int                       // steps planned ahead; default: the job spec's
	AllowRoots   []string                  // folders that sources which join are read from; default: the job's own
	Changes      []change.Change           // made before the first step is planned, unless the log has them
	Absence      time.Duration             // that a constructor may be away before another one serves its ranks; default DefaultAbsence, negative: for ever
	StartWindow  time.Duration             // how long a rank that joins a job that runs without a token waits for the others; default DefaultStartWindow
	Suspect      time.Duration             // how long a loader or constructor may say nothing before others are asked in its place; default DefaultSuspect
	GiveUp       time.Duration             // how much longer a constructor's session goes on then, if another one can serve its ranks; default 1.5 s
	Log          *slog.Logger              // default: discard
	Registry     compile.Registry          // strategies and policies of the program
	Scale        scaling.Options           // has loaders join and leave as the mix asks for them
	Beside       func(address string) bool // whether who has an address is reached without a connection, as part of this process; may be nil
	Serving      func(address string)      // called when the address is open; may be nil
	Telemetry    *telemetry.Board          // where the planner is shown; nil: nowhere
}

func (o *Options) withDefaults() {
	o.Loaders = max(o.Loaders, 1)
	o.Constructors = max(cmp.Or(o.Constructors, o.nodes()), 1)
	if o.Prefetch == 0 {
		o.Prefetch = o.Job.Resources.Prefetch
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Suspect = cmp.Or(o.Suspect, DefaultSuspect)
	o.Absence = max(cmp.Or(o.Absence, DefaultAbsence), 0)
	o.StartWindow = cmp.Or(o.StartWindow, DefaultStartWindow)
}

func (o *Options) validate() error {
	if o.LogRetain != 0 && o.LogRetain < checkpoint.TrimEvery {
		return fault.Userf("a log that retains %d steps: valid is %d or more, as a log lets go of %d steps at a time; or 0, to keep all",
			o.LogRetain, checkpoint.TrimEvery, checkpoint.TrimEvery)
	}
	if most := max(o.Job.Topology.DP, o.nodes()); o.Constructors > most {
		return fault.Userf("%d constructors for %d data-parallel ranks: each constructor serves at least one, or a node; use --constructors %d or fewer",
			o.Constructors, o.Job.Topology.DP, most)
	}
	return nil
}

// keyless is the warning of a planner that stands by and is given no access key.
const keyless = "this planner was given no access key and makes one when it takes over, which only processes of its user find that can read its folder: " +
	"if the planner that it stands by for has --access-key-file, give this one the same file, or loaders, constructors and ranks end then"

// nodes is the number of the trainers' nodes; 0 if that is not known.
func (o *Options) nodes() int {
	if o.RanksPerNode == 0 {
		return 0
	}
	return control.Nodes(o.ranks(), o.RanksPerNode)
}

func (o *Options) ranks() int {
	return o.Job.Topology.DP * o.Job.Topology.CP * o.Job.Topology.PP * o.Job.Topology.TP
}

// costs of the sources are kept beside the log, if that is in a folder of this machine.
func (o *Options) costs() *scaling.Costs {
	dir := o.LogDir
	if o.LogFS != nil {
		dir = ""
	}
	return scaling.NewCosts(o.Job, dir, o.Log)
}

func (o *Options) stepLog() steplog.Options {
	return steplog.Options{Dir: o.LogDir, Mirror: o.LogMirror, Proved: o.MirrorProved, FS: o.LogFS, Spec: o.Job.Identity(), Standby: o.Standby, Logger: o.Log, KeyFrame: o.KeyFrame}
}

// Planner is a running Planner. All fields below inbox belong to the goroutine
// that runs loop.
type Planner struct {
	pb.UnimplementedPlannerServer
	opts    Options
	spec    [32]byte
	started time.Time
	lastID  atomic.Uint64 // of sessions and questions
	cfg     control.Config
	epoch   uint64        // of this planner; 0 if it keeps no log
	stale   atomic.Uint64 // what trainers refused of planners of lower epochs, and this one of trainers and roles that heard of a higher one
	orders  *wire.Orders
	over    chan struct{} // closed when the loop takes nothing any more
	done    chan struct{} // closed when nothing is done any more
	busy    busy
	words   words
	counted counted
	costs   *scaling.Costs
	holdups status.Holdups
	pulse   status.Pulse
	traced  traced
	scaling *scaling.Scaling
	log     *steplog.Writer
	inbox   chan input

	core         *control.Core
	loaders      map[control.Session]*loaderSession
	constructors map[control.Session]*constructorSession
	asks         map[uint64]chan<- control.Answer
	listening    listening
	later        []loaderOrder // orders to loaders that wait until parts are sent
	cut          *cut.Step     // the step that was cut last
	stopped      error         // why the loop ends, if not on request
}

// Run serves until ctx ends or the job fails for good. A failure of class fault.User
// does not end it: trainers hear what to mend, again and again, until someone stops
// the service. After any other, such as of the log's disk, all hear why for a
// moment, and Run returns it. When a log with a mirror stops, nobody hears of it, as
// another planner may go on: Run returns at once.
func Run(ctx context.Context, opts Options) error {
	opts.withDefaults()
	if err := opts.validate(); err != nil {
		return err
	}
	if uneven := control.Uneven(opts.ranks(), opts.RanksPerNode); uneven != "" {
		opts.Log.Warn(uneven, "ranks_per_node", opts.RanksPerNode, "ranks", opts.ranks())
	}
	if opts.Standby {
		if opts.Security = opts.Security.StandsBy(); opts.Security.MakesKey() {
			opts.Log.Warn(keyless)
		}
	}
	port := rpc.NewPort(opts.Address, opts.Advertise, opts.Security, rpc.MaxControl)
	if err := port.Ready(); err != nil {
		return err
	}
	defer port.Shut()
	logOpts := opts.stepLog()
	logOpts.Ready, logOpts.Open, logOpts.Shut = port.Ready, port.Open, port.Shut
	serves := sync.OnceFunc(waits(ctx, &opts))
	defer serves()
	if err := logOpts.Prove(ctx); err != nil {
		return err
	}
	p, err := newPlanner(opts)
	if err != nil {
		return err
	}
	from, err := steplog.Take(ctx, &logOpts)
	serves()
	if err != nil {
		return err
	}
	p.begin(logOpts, from)
	if ctx.Err() != nil { // it stood by until it was stopped
		return p.log.Close()
	}
	defer p.show()()
	register := func(s grpc.ServiceRegistrar) { pb.RegisterPlannerServer(s, p) }
	served := false
	err = port.Run(ctx, register, func(ctx context.Context, address string) error {
		if served = true; opts.Serving != nil {
			opts.Serving(address)
		}
		return p.run(ctx)
	})
	if !served {
		err = errors.Join(err, p.log.Close())
	}
	return err
}

func newPlanner(opts Options) (*Planner, error) {
	cfg, err := CoreConfig(opts.Job, opts.Registry)
	if err != nil {
		return nil, err
	}
	f := opts.Job.Mix.Feedback
	if cfg.Policy, err = opts.Registry.Policies.New(f.Policy, feedback.Options{Rate: float64(f.Rate) / 1000, Floor: float64(f.Floor) / 1000}); err != nil {
		return nil, err
	}
	cfg.Plan.Ahead = int64(opts.Prefetch)
	cfg.Loaders, cfg.Constructors = opts.Loaders, opts.Constructors
	if len(opts.AllowRoots) > 0 {
		cfg.AllowRoots = jobspec.RootsAt(opts.AllowRoots) // else they are the job's own
	}
	cfg.NodeRanks, cfg.Mirrored = opts.RanksPerNode, opts.LogMirror != ""
	cfg.Shadows, cfg.Hot, cfg.Deal = opts.Shadows, opts.HotShadows, opts.Deal
	cfg.Absence = control.Millis(opts.Absence.Milliseconds())
	cfg.Changes, cfg.Window = opts.Changes, control.Millis(opts.StartWindow.Milliseconds())
	cfg.Retain, cfg.TrimEvery = int64(opts.LogRetain), checkpoint.TrimEvery
	if n := failpoint.SmallLog(); n > 0 && opts.LogRetain > 0 {
		cfg.Retain, cfg.TrimEvery = int64(2*n), int64(n)
		opts.KeyFrame = func(step int64) bool { return step%int64(n) == 0 }
	}
	cfg.Suspect, cfg.GiveUp = control.Millis(opts.Suspect.Milliseconds()), control.Millis(opts.GiveUp.Milliseconds())
	p := &Planner{
		opts: opts, cfg: cfg, orders: wire.NewOrders(opts.Job, opts.Prefetch, opts.Telemetry.TraceEvery()), spec: opts.Job.Identity(),
		costs: opts.costs(), inbox: make(chan input), over: make(chan struct{}), done: make(chan struct{}),
		loaders:      map[control.Session]*loaderSession{},
		constructors: map[control.Session]*constructorSession{},
		asks:         map[uint64]chan<- control.Answer{},
		traced:       traced{opts.Telemetry.TraceEvery(), map[int64]time.Time{}},
	}
	opts.Scale.Ahead, opts.Scale.Least = opts.Prefetch, cmp.Or(opts.Scale.Least, opts.Loaders)
	p.scaling = scaling.New(opts.Scale, p, opts.Job, opts.Shadows, p.costs, opts.Log)
	return p, nil
}

// begin makes what a planner has of its log: nothing happens before.
func (p *Planner) begin(opts steplog.Options, from steplog.Taken) {
	p.epoch, p.started = from.Epoch, time.Now() // it may have stood by for long
	p.cfg.Epoch, p.cfg.Resumes = from.Epoch, from.Resumes()
	p.core = control.New(p.cfg)
	p.log = steplog.NewWriter(opts, from, func(ev control.Event) {
		_ = p.put(context.Background(), occurred{ev}) // it fails when there is no planner any more
	})
	if from.Failed != nil { // loaders and constructors that know an epoch refuse a planner that has none, so that no log is opened later
		p.apply(control.Failed{Err: from.Failed})
	}
}

// CoreConfig is the part of a core's configuration that the job spec alone says. Two
// things that a plan may do at the same time are done so.
func CoreConfig(job *jobspec.Job, names compile.Registry) (control.Config, error) {
	cfg, err := compile.Plan(job, names)
	cfg.Both = both
	return control.Config{Job: job, Plan: cfg, Loaders: 1, AllowRoots: job.Roots(), Listing: wire.Listing}, err
}

// both calls two functions at the same time. A panic of a is the caller's, after b is done.
func both(a, b func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		b()
	}()
	defer func() { <-done }()
	a()
}
