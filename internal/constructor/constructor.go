// Package constructor is the DataConstructor role: it fetches the samples of its
// buckets' plans from the loaders, assembles them, and hands each trainer rank
// exactly its part.
//
// It owns the batches of the steps under way, under a byte budget, and the ranks'
// acknowledgements. It is dumb on purpose: which sample lies where is the
// planner's decision, and it knows neither the job spec nor the sources' files.
package constructor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/constructor/assemble"
	"github.com/millrace-data/millrace/internal/constructor/deliver"
	"github.com/millrace-data/millrace/internal/failpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/handover"
	"github.com/millrace-data/millrace/internal/imaging"
	"github.com/millrace-data/millrace/internal/memory"
	"github.com/millrace-data/millrace/internal/multibuffer"
	"github.com/millrace-data/millrace/internal/nvml"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/telemetry"
)

// Options configure a constructor. Planner and Address are required.
type Options struct {
	ID        string        // unique in the job; default: the address
	Planner   string        // address of the planner, or several, separated by commas: each is tried in turn
	Patience  time.Duration // without a planner, after which Run ends; default: no limit
	Address   string        // address to listen on, HOST:PORT or unix:PATH
	Advertise string        // HOST or HOST:PORT that others reach it at; default: the address, or the machine's name
	Security  rpc.Security  //
	Buffer    int64         // bytes of assembled batches to hold; default: the job spec's
	Deadline  time.Duration // how long one fetch or one wait of a rank may take; default 10 minutes
	Drain     time.Duration // how long the steps that are there are given to ranks that ask after ctx ended; 0: not at all
	Log       *slog.Logger  // default: discard
	// Fit is called once with the bytes that Buffer or the job asks for, and returns those to hold; nil: as many.
	Fit func(asked int64) int64
	// Exchange is where loaders of this process are found; may be nil.
	Exchange *handover.Exchange
	// Node is the number of the trainers' node that it is on, whose ranks it is to serve; nil: any.
	Node *uint32
	// SharedDir is the folder of its socket for ranks of the same machine; default: MILLRACE_SHARED_DIR, or one of
	// the user's. hostmem.None: it shares no memory.
	SharedDir string
	// Telemetry is where the constructor is shown; nil: nowhere.
	Telemetry *telemetry.Board
	// GPUs are the last samples of the GPUs of its machine, which it reports; nil: they are not sampled.
	GPUs func() []nvml.Sample
}

// defaultDeadline is far above any healthy step and below the half hour after
// which collectives are given up: the rank's error comes first and says why.
const defaultDeadline = 10 * time.Minute

func (o *Options) withDefaults() {
	if o.Deadline == 0 {
		o.Deadline = defaultDeadline
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Constructor is a running DataConstructor.
type Constructor struct {
	pb.UnimplementedConstructorServer
	opts     Options
	instance uint64 // of this process
	job      currentJob
	steps    *deliver.Steps
	peers    *peers
	epochs   rpc.Epochs // of planners, as they and ranks say
	bodies   bodies

	attempts sync.WaitGroup // of fetches, those that others were faster than among them
	hearing  sync.WaitGroup // of what ranks say on their lines
	stopped  chan struct{}  // closed when it serves no more
	sharing  *sharing

	pictures *imaging.Pool // within room; there from the first job on
	room     *memory.Room
	session  atomic.Pointer[session] // with the planner; nil while there is none
	most     int64                   // bytes of steps, whatever a job asks for
	tracing  atomic.Pointer[tracing] // nil until the job is known
	budgeted sync.Once               // by the first job
}

// Run serves until ctx ends. While there is no planner it goes on with what was planned, and
// looks for one: for Options.Patience, or for ever.
func Run(ctx context.Context, opts Options) error {
	opts.withDefaults()
	c := &Constructor{opts: opts, instance: rpc.NewInstance(), steps: deliver.New(), stopped: make(chan struct{}), peers: newPeers(handover.NewDirectory(opts.Exchange, opts.Security.Of(opts.Planner)))}
	defer c.peers.directory.Close()
	defer c.attempts.Wait()
	defer c.hearing.Wait()
	defer c.openLines()()
	register := func(s grpc.ServiceRegistrar) { pb.RegisterConstructorServer(s, c) }
	return rpc.Run(ctx, opts.Address, opts.Advertise, opts.Security.Of(opts.Planner), rpc.MaxAsk, register, func(ctx context.Context, address string) error {
		c.opts.ID = cmp.Or(c.opts.ID, address)
		defer c.show()()
		g, work := errgroup.WithContext(ctx)
		g.Go(func() error { return c.assemble(work) })
		g.Go(func() error { return cmp.Or(c.talk(work, address), context.Canceled) })
		err := g.Wait()
		stopped := errStopped
		if ctx.Err() != nil && c.opts.Drain > 0 {
			stopped = c.drain()
		}
		if errors.Is(err, context.Canceled) {
			c.steps.Fail(stopped)
		}
		c.steps.Fail(err)
		close(c.stopped)
		return err
	})
}

// drainQuiet is how long no rank has taken a step when those that want one have it.
const drainQuiet = 500 * time.Millisecond

// drain gives ranks the steps that are there, and sends those that ask for others to the planner,
// which knows already that this constructor leaves. It returns the error of these.
func (c *Constructor) drain() error {
	left := c.steps.Leave()
	taken, quiet := c.steps.Usage().DeliveredBatches, time.Now()
	for end := time.Now().Add(c.opts.Drain); time.Now().Before(end) && time.Since(quiet) < drainQuiet; time.Sleep(drainQuiet / 10) {
		if n := c.steps.Usage().DeliveredBatches; n != taken {
			taken, quiet = n, time.Now()
		}
	}
	return left
}

// errStopped ends the requests that wait when the constructor stops with its service.
var errStopped = fault.Lostf("the service is shutting down")

// talk holds sessions with the planner until ctx ends: plans in, digests and acknowledgements
// out.
func (c *Constructor) talk(ctx context.Context, address string) error {
	role := rpc.Role{
		Kind: "constructor", ID: c.opts.ID, Address: address, Callers: "trainers",
		Planner: c.opts.Planner, Patience: c.opts.Patience, Security: c.opts.Security, Epochs: &c.epochs, Log: c.opts.Log, Alone: c.steps.Alone,
	}
	hello := func(epoch uint64) *pb.ConstructorReport {
		held := c.steps.Held()
		c.steps.Attach()
		return &pb.ConstructorReport{Report: &pb.ConstructorReport_Hello{Hello: &pb.ConstructorHello{
			Id: c.opts.ID, Address: address, Protocol: rpc.Oldest, Newest: rpc.Protocol, Epoch: epoch, Held: held, Instance: c.instance, Node: c.opts.Node,
		}}}
	}
	return rpc.Talk(ctx, role, pb.PlannerClient.Construct, hello, func(ctx context.Context, s *session) error {
		c.session.Store(s)
		defer c.session.Store(nil)
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return s.Each(ctx, func(o *pb.ConstructorOrder) error { return c.take(s, o) }) })
		g.Go(func() error { return c.report(ctx, s) })
		beat := &pb.ConstructorReport{Report: &pb.ConstructorReport_Beat{Beat: &pb.Beat{}}}
		return s.Beating(ctx, rpc.ConstructorBeatEvery, beat, g.Wait)
	})
}

// session is a constructor's side of its stream with the planner.
type session = rpc.Session[pb.ConstructorReport, pb.ConstructorOrder]

// take takes in an order of the planner.
func (c *Constructor) take(s *session, order *pb.ConstructorOrder) error {
	switch o := order.Order.(type) {
	case *pb.ConstructorOrder_Job:
		return c.takeJob(o.Job)
	case *pb.ConstructorOrder_Placement:
		c.peers.set(o.Placement)
	case *pb.ConstructorOrder_Restart:
		c.job.restart()
		c.steps.Restart(o.Restart)
		failpoint.Hit(failpoint.RestartApplied)
		return s.Send(&pb.ConstructorReport{Report: &pb.ConstructorReport_Restarted{Restarted: o.Restart.Generation}})
	case *pb.ConstructorOrder_Plan:
		c.job.restart() // a planner that begins again sends no Restart
		c.steps.Plan(o.Plan)
	case *pb.ConstructorOrder_End:
		c.steps.End(o.End)
	case *pb.ConstructorOrder_Joined:
		c.job.join(o.Joined)
	case *pb.ConstructorOrder_Entered:
		c.steps.Enter(o.Entered)
	case *pb.ConstructorOrder_Admit:
		return s.Send(&pb.ConstructorReport{Report: &pb.ConstructorReport_Admitted{Admitted: c.steps.Admit(o.Admit)}})
	case *pb.ConstructorOrder_Waiting:
		c.steps.PlannerAwaits(o.Waiting)
	case *pb.ConstructorOrder_Failure:
		c.steps.Fail(rpc.Final(rpc.FromFailure(o.Failure)))
	}
	return nil
}

func (c *Constructor) takeJob(job *pb.ConstructorJob) error {
	if !c.steps.Serves(job.Identity) {
		return fault.Lostf("the planner at %s has another job by now (%s): start constructor %s again for it", c.opts.Planner, job.Name, c.opts.ID)
	}
	layout := assemble.Layout{
		Format: job.Format, CPSlicing: job.CpSlicing,
		SequenceLength: int(job.SequenceLength), PadID: job.PadId,
		CP: int(job.Mesh.GetCp()), PP: int(job.Mesh.GetPp()), Packed: job.Packing,
		DocumentMultiple: int(job.DocumentMultiple), Split: job.ContextSplit,
	}
	if layout.Split {
		layout.CP = 1 // the width of a row takes its place
	}
	if err := layout.Validate(); err != nil {
		return err
	}
	budget := int64(job.BufferBytes)
	if c.opts.Buffer > 0 {
		budget = c.opts.Buffer
	}
	c.budgeted.Do(func() { c.fit(budget) })
	c.job.set(job, layout)
	c.tracing.Store(tracingOf(job))
	c.steps.Take(job, min(budget, c.most))
	return nil
}

// fit sets the most that steps may take of what a job asks for.
func (c *Constructor) fit(budget int64) {
	c.most = math.MaxInt64
	if c.opts.Fit != nil {
		if given := c.opts.Fit(budget); given < budget {
			budget, c.most = given, given
		}
	}
	c.decodeWithin(budget)
}

// concurrentSteps is how many steps are fetched at a time: one on its way while
// another is put together.
const concurrentSteps = 2

// assemble builds the steps in order as plans come and the budget allows, whether there is a
// planner or not.
func (c *Constructor) assemble(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for range concurrentSteps {
		g.Go(func() error {
			for {
				p, err := c.steps.Claim(ctx)
				if err != nil {
					return err
				}
				if err := c.build(ctx, p); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// build fetches one step, lays it out and decodes its images. An error ends the job, not the
// role: trainers get it with its cause.
func (c *Constructor) build(ctx context.Context, p *pb.StepPlan) error {
	failpoint.Hit(failpoint.PlanTaken)
	begin := time.Now()
	fetch, cancel := context.WithTimeout(ctx, c.opts.Deadline)
	defer cancel()
	fetch = rpc.Telling(fetch, func(address string, w *pb.Waiting) { c.steps.Awaits(p, address, w) })
	s, err := c.fetch(fetch, p)
	c.steps.Fetched(time.Since(begin))
	fetched := time.Now()
	c.trace(p.Generation, p.Step, telemetry.SpanFetch, c.opts.ID, begin, fetched)
	if err == nil && s.undecoded > 0 {
		s.bytes += s.undecoded
		if err = c.steps.Grow(ctx, p, s.bytes+s.decoding(c.room)); err == nil {
			err = c.decode(ctx, s)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		c.giveUp(p, err)
		return nil
	}
	failpoint.Hit(failpoint.BuildAfter)
	rows := s.assembled(p)
	c.steps.Assembled(time.Since(fetched))
	c.trace(p.Generation, p.Step, telemetry.SpanAssemble, c.opts.ID, fetched, time.Now(), telemetry.Note{Key: "bytes", Value: s.bytes})
	failpoint.Hit(failpoint.DeliverReady)
	c.steps.Done(&deliver.Step{Generation: p.Generation, Number: p.Step, Bytes: s.bytes, Plan: p, Rows: rows, Content: s})
	return nil
}

// giveUp fails the job for a step that cannot be built, unless the step is not wanted any more.
func (c *Constructor) giveUp(p *pb.StepPlan, err error) {
	err = fault.As(fault.ClassOf(err), fmt.Errorf("step %d: %w", p.Step, err))
	if !c.steps.GiveUp(p, err) {
		c.opts.Log.Warn("a step that is not wanted any more failed", "step", p.Step, "err", err)
		return
	}
	c.opts.Log.Error("step failed", "step", p.Step, "err", err)
	if s := c.session.Load(); s != nil { // without one, the next planner has the step built again
		_ = s.Send(&pb.ConstructorReport{Report: &pb.ConstructorReport_Failure{Failure: rpc.ToFailure(err, -1)}}) // whoever reads the session hears why not
	}
}

// assembled is what the planner is to hear of a step, in messages of a size that it takes.
func (s *step) assembled(p *pb.StepPlan) (all []*pb.Assembled) {
	digests := s.digests()
	for rest := digests; ; rest = rest[rowsPerReport:] {
		told := rest[:min(len(rest), rowsPerReport)]
		part := &pb.Assembled{Generation: p.Generation, Step: p.Step, Rows: p.Rows[len(digests)-len(rest):][:len(told)]}
		for i := range told {
			part.Digests = append(part.Digests, told[i][:]...)
		}
		if all = append(all, part); len(rest) <= rowsPerReport {
			return all
		}
	}
}

// digests returns the digest of each row.
func (s *step) digests() [][32]byte {
	messages := make([]multibuffer.Message, len(s.rows))
	for i := range s.rows {
		messages[i] = batch.RowMessage(s.rows[i].Row)
	}
	return multibuffer.Sums(messages)
}

// rowsPerReport is the number of rows whose digests go in one message: at 37 bytes each below
// rpc.MaxControl.
const rowsPerReport = 65_536

// usageEvery is how often memory and waits are reported.
const usageEvery = time.Second

// report sends digests and acknowledgements as they change, and usage every second.
func (c *Constructor) report(ctx context.Context, send *session) error {
	tick := time.NewTicker(usageEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.steps.Changed():
			failpoint.Hit(failpoint.AckBefore)
			if err := c.reportChanged(send); err != nil {
				return err
			}
		case <-tick.C:
			if err := send.Send(&pb.ConstructorReport{Report: &pb.ConstructorReport_Usage{Usage: c.usage()}}); err != nil {
				return err
			}
		}
	}
}

func (c *Constructor) reportChanged(send *session) error {
	rows, acks := c.steps.TakeReports()
	for _, r := range rows {
		if err := send.Send(&pb.ConstructorReport{Report: &pb.ConstructorReport_Assembled{Assembled: r}}); err != nil {
			return err
		}
	}
	for _, a := range acks {
		if err := send.Send(&pb.ConstructorReport{Report: &pb.ConstructorReport_Acked{Acked: a}}); err != nil {
			return err
		}
	}
	return nil
}
