// Package planner is the Planner role: the shell around the pure core in
// planner/plan.
//
// It owns the sessions with loaders and constructors, the job's log, and the
// answers to trainers that join or save their position. Every decision about
// order is the core's; the shell makes its effects durable first and sends them
// then. One goroutine owns all of its state and reads one inbox.
package planner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/checkpoint"
	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/planner/jobspec"
	"github.com/millrace-data/millrace/planner/mix"
	"github.com/millrace-data/millrace/planner/plan"
	pb "github.com/millrace-data/millrace/proto"
)

// Options configure a planner. Job and Address are required.
type Options struct {
	Job          *jobspec.Job
	Directory    string               // what the job's relative paths are relative to
	Address      string               // address to listen on, HOST:PORT or unix:PATH
	Advertise    string               // HOST or HOST:PORT that others reach it at; default: the address, or the machine\'s name
	Security     rpc.Security         //
	LogDir       string               // where the step log is kept; "" keeps none
	Loaders      int                  // loaders to wait for before anything is read; default 1
	Constructors int                  // constructors the DP ranks are spread over; default 1
	Prefetch     int                  // steps planned ahead; default: the job spec's
	Log          *slog.Logger         // default: discard
	Serving      func(address string) // called when the address is open; may be nil
}

func (o *Options) withDefaults() {
	o.Loaders = max(o.Loaders, 1)
	o.Constructors = max(o.Constructors, 1)
	if o.Prefetch == 0 {
		o.Prefetch = o.Job.Resources.Prefetch
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
	done  chan struct{} // closed when loop returned

	id           identity
	limited      []bool
	log          *checkpoint.Log
	core         *plan.Core
	generation   uint64
	failed       error
	loaders      []*loaderSession
	constructors []*constructorSession // by number; nil until it is there
	indexed      []*pb.SourceIndexed   // by source; nil until it is known
	steps        map[int64]*plan.Step  // published and not acked
	wanted       map[wantKey]*loaderSession
	ended        int64 // first step that does not exist; -1 while unknown
	acks         map[uint32]*pb.Acked
	joins        uint64        // so far
	waiting      []func() bool // questions that cannot be answered yet; true = answered
	ledger       []ledger      // by source
	started      time.Time
}

type wantKey struct {
	source int32
	seq    int64
}

// ledger is what a source gave and lost so far in this service's life.
type ledger struct {
	filtered, dropped, empty uint64
	skipped                  uint64
	epochSkips               map[int64]int
	lastSkip                 *pb.Skip
}

// Run serves until ctx ends. The job's own failure does not end it: trainers are
// told why, again and again, until someone stops the service.
func Run(ctx context.Context, opts Options) error {
	opts.withDefaults()
	if err := opts.validate(); err != nil {
		return err
	}
	p := newPlanner(opts)
	register := func(s *grpc.Server) { pb.RegisterPlannerServer(s, p) }
	return rpc.Run(ctx, opts.Address, opts.Advertise, opts.Security, register, func(ctx context.Context, address string) error {
		if opts.Serving != nil {
			opts.Serving(address)
		}
		return p.loop(ctx)
	})
}

func newPlanner(opts Options) *Planner {
	sources := len(opts.Job.Sources)
	p := &Planner{
		opts:         opts,
		inbox:        make(chan func()),
		done:         make(chan struct{}),
		id:           identity{name: opts.Job.Name, spec: opts.Job.Identity()},
		limited:      make([]bool, sources),
		constructors: make([]*constructorSession, opts.Constructors),
		indexed:      make([]*pb.SourceIndexed, sources),
		steps:        map[int64]*plan.Step{},
		wanted:       map[wantKey]*loaderSession{},
		ended:        -1,
		acks:         map[uint32]*pb.Acked{},
		ledger:       make([]ledger, sources),
		started:      time.Now(),
	}
	for i, s := range opts.Job.Sources {
		p.limited[i] = s.Limit > 0
		p.ledger[i].epochSkips = map[int64]int{}
	}
	return p
}

// loop owns the planner's state.
func (p *Planner) loop(ctx context.Context) error {
	defer close(p.done)
	var err error
	for err == nil {
		select {
		case f := <-p.inbox:
			f()
			p.answer()
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if p.log != nil {
		return p.log.Close()
	}
	return nil
}

// do runs f in the loop and waits for it.
func (p *Planner) do(ctx context.Context, f func()) error {
	ran := make(chan struct{})
	select {
	case p.inbox <- func() { f(); close(ran) }:
		<-ran
		return nil
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
	if err := p.do(ctx, func() { p.waiting = append(p.waiting, once) }); err != nil {
		return err
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

// answer tries the open questions again.
func (p *Planner) answer() {
	waiting := p.waiting[:0]
	for _, once := range p.waiting {
		if !once() {
			waiting = append(waiting, once)
		}
	}
	p.waiting = waiting
}

// fail ends the job: from now on everybody is told err.
func (p *Planner) fail(err error) {
	if p.failed != nil {
		return
	}
	p.failed = err
	p.opts.Log.Error("job failed", "job", p.id.name, "class", fault.ClassOf(err).String(), "err", err)
	for _, c := range p.constructors {
		if c != nil {
			c.out.Put(&pb.ConstructorOrder{Order: &pb.ConstructorOrder_Failure{Failure: rpc.ToFailure(err, -1)}})
		}
	}
}

// start opens the log and plans the first steps once all sources are indexed.
func (p *Planner) start() {
	var manifests [][32]byte
	cfg := p.config()
	for i, x := range p.indexed {
		manifests = append(manifests, [32]byte(x.Manifest))
		cfg.Sources = append(cfg.Sources, plan.Source{
			Name: p.opts.Job.Sources[i].Name, Blocks: int64(x.Blocks), Limit: p.opts.Job.Sources[i].Limit,
		})
	}
	p.id.manifest = batch.Combine(manifests)
	cfg.Root = batch.Root(p.id.spec, p.id.manifest)
	if p.opts.LogDir != "" {
		log, err := checkpoint.Open(p.opts.LogDir, checkpoint.Options{Identity: cfg.Root, Logger: p.opts.Log})
		if err != nil {
			p.fail(err)
			return
		}
		p.log = log
	}
	p.opts.Log.Info("job starts", "job", p.id.name, "sources", len(cfg.Sources), "root", fmt.Sprintf("%x", cfg.Root[:6]))
	p.core = plan.New(cfg)
	p.act(p.core.Start())
}

// config is the core's view of the job spec.
func (p *Planner) config() plan.Config {
	job := p.opts.Job
	return plan.Config{
		Schedule:       Schedule(job),
		CountSamples:   job.Mix.Unit == "samples",
		Epochs:         int64(job.Mix.Epochs),
		Renormalize:    job.Mix.Exhausted == "renormalize",
		SequenceLength: int32(job.Batch.SequenceLength),
		Rows:           job.Batch.Sequences,
		Packing:        job.Batch.Packing,
		Ahead:          int64(p.opts.Prefetch),
		Window:         job.Resources.Window,
	}
}

// Schedule is the job's mix with weights in the order of its sources.
func Schedule(job *jobspec.Job) mix.Schedule {
	var stages []mix.Stage
	for _, st := range job.Mix.Stages {
		weights := make([]float64, len(job.Sources))
		for i, s := range job.Sources {
			weights[i] = st.Weights[s.Name]
		}
		stages = append(stages, mix.Stage{From: st.From, Ramp: st.Ramp, Over: st.Over, Weights: weights})
	}
	return mix.NewSchedule(stages)
}

// apply gives the core an event and carries out what follows.
func (p *Planner) apply(ev plan.Event) {
	if p.core != nil && p.failed == nil {
		p.act(p.core.Apply(ev))
	}
}

// act carries out effects in order: to the log first, then to the others.
func (p *Planner) act(effects []plan.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case plan.Want:
			p.want(wantKey{e.Source, e.Seq})
		case plan.Release:
			for _, l := range p.loaders {
				l.out.Put(&pb.LoaderOrder{Order: &pb.LoaderOrder_Release{
					Release: &pb.ReleaseBlocks{Source: uint32(e.Source), Before: uint64(e.Before)},
				}})
			}
		case plan.Publish:
			p.publish(e.Step)
		case plan.End:
			p.end(e.Step)
		case plan.Digested:
			p.digested(e.Step, e.Digest)
		case plan.Fail:
			p.fail(e.Err)
		}
		if p.failed != nil {
			return
		}
	}
}

// publish makes a plan durable and sends each constructor its part.
func (p *Planner) publish(s *plan.Step) {
	if err := p.record(s); err != nil {
		p.fail(err)
		return
	}
	p.steps[s.Step] = s
	for _, c := range p.constructors {
		if c != nil {
			c.out.Put(p.partOf(s, c))
		}
	}
}

func (p *Planner) end(step int64) {
	p.ended = step
	p.opts.Log.Info("end of data", "job", p.id.name, "step", step)
	for _, c := range p.constructors {
		if c != nil {
			c.out.Put(p.endOrder())
		}
	}
}

func (p *Planner) endOrder() *pb.ConstructorOrder {
	return &pb.ConstructorOrder{Order: &pb.ConstructorOrder_End{
		End: &pb.EndOfData{Generation: p.generation, Step: uint64(p.ended)},
	}}
}

// digested notes the chain value after `step` steps in the log, beside the record of
// the last of them; it need not be durable, since it
// can be computed again.
func (p *Planner) digested(step int64, digest [32]byte) {
	if p.log == nil {
		return
	}
	if err := p.log.SetDigest(step-1, digest); err != nil {
		p.fail(err)
	}
}
