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
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/internal/constructor/assemble"
	"github.com/millrace-data/millrace/internal/constructor/deliver"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/handover"
	"github.com/millrace-data/millrace/internal/imaging"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// Options configure a constructor. Planner and Address are required.
type Options struct {
	ID        string            // unique in the job; default: the address
	Planner   string            // address of the planner
	Address   string            // address to listen on, HOST:PORT or unix:PATH
	Advertise string            // HOST or HOST:PORT that others reach it at; default: the address, or the machine\'s name
	Security  rpc.Security      //
	Buffer    int64             // bytes of assembled batches to hold; default: the job spec's
	Deadline  time.Duration     // how long one fetch or one wait of a rank may take; default 10 minutes
	Log       *slog.Logger      // default: discard
	OnBudget  func(bytes int64) // called once with the budget in force; may be nil
	// Exchange is where loaders of this process are found; may be nil.
	Exchange *handover.Exchange
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
	opts   Options
	job    currentJob
	steps  *deliver.Steps
	peers  *peers
	bodies bodies

	pictures *imaging.Pool
}

// Run serves until ctx ends or the planner goes away.
func Run(ctx context.Context, opts Options) error {
	opts.withDefaults()
	c := &Constructor{opts: opts, steps: deliver.New(), peers: newPeers(handover.NewDirectory(opts.Exchange, opts.Security.Of(opts.Planner))), pictures: imaging.NewPool(runtime.GOMAXPROCS(0))}
	defer c.peers.directory.Close()
	register := func(s *grpc.Server) { pb.RegisterConstructorServer(s, c) }
	return rpc.Run(ctx, opts.Address, opts.Advertise, opts.Security.Of(opts.Planner), rpc.MaxAsk, register, func(ctx context.Context, address string) error {
		c.opts.ID = cmp.Or(c.opts.ID, address)
		err := c.session(ctx, address)
		if err == nil || errors.Is(err, context.Canceled) {
			c.steps.Fail(errStopped)
		}
		c.steps.Fail(err)
		return err
	})
}

// errStopped ends the requests that wait when the constructor stops.
var errStopped = fault.Lostf("the service is shutting down")

// session talks to the planner until ctx ends: plans in, digests and acknowledgements out.
func (c *Constructor) session(ctx context.Context, address string) error {
	role := rpc.Role{
		Kind: "constructor", ID: c.opts.ID, Address: address, Callers: "trainers",
		Planner: c.opts.Planner, Security: c.opts.Security, Log: c.opts.Log,
	}
	hello := &pb.ConstructorReport{Report: &pb.ConstructorReport_Hello{Hello: &pb.ConstructorHello{Id: c.opts.ID, Address: address}}}
	return rpc.Talk(ctx, role, pb.PlannerClient.Construct, hello, func(ctx context.Context, s *session) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return s.Each(ctx, func(o *pb.ConstructorOrder) error { return c.take(s, o) }) })
		g.Go(func() error { return c.assemble(ctx, s) })
		g.Go(func() error { return c.report(ctx, s) })
		return g.Wait()
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
		c.peers.set(o.Placement.Loaders)
	case *pb.ConstructorOrder_Restart:
		c.steps.Restart(o.Restart)
		return s.Send(&pb.ConstructorReport{Report: &pb.ConstructorReport_Restarted{Restarted: o.Restart.Generation}})
	case *pb.ConstructorOrder_Plan:
		c.steps.Plan(o.Plan)
	case *pb.ConstructorOrder_End:
		c.steps.End(o.End)
	case *pb.ConstructorOrder_Joined:
		c.job.join(o.Joined)
	case *pb.ConstructorOrder_Entered:
		c.steps.Enter(o.Entered)
	case *pb.ConstructorOrder_Admit:
		return s.Send(&pb.ConstructorReport{Report: &pb.ConstructorReport_Admitted{Admitted: c.steps.Admit(o.Admit)}})
	case *pb.ConstructorOrder_Failure:
		c.steps.Fail(rpc.Final(rpc.FromFailure(o.Failure)))
	}
	return nil
}

func (c *Constructor) takeJob(job *pb.ConstructorJob) error {
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
	if c.opts.OnBudget != nil {
		c.opts.OnBudget(budget)
	}
	c.job.set(job, layout)
	c.steps.Take(job, budget)
	return nil
}

// concurrentSteps is how many steps are fetched at a time: one on its way while
// another is put together.
const concurrentSteps = 2

// assemble builds the steps in order as plans come and the budget allows.
func (c *Constructor) assemble(ctx context.Context, send *session) error {
	g, ctx := errgroup.WithContext(ctx)
	for range concurrentSteps {
		g.Go(func() error {
			for {
				p, err := c.steps.Claim(ctx)
				if err != nil {
					return err
				}
				if err := c.build(ctx, p, send); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// build fetches one step, lays it out and decodes its images. An error ends the job, not the
// session: trainers get it with its cause.
func (c *Constructor) build(ctx context.Context, p *pb.StepPlan, send *session) error {
	begin := time.Now()
	fetch, cancel := context.WithTimeout(ctx, c.opts.Deadline)
	defer cancel()
	s, err := c.fetch(fetch, p)
	c.steps.Fetched(time.Since(begin))
	if err == nil && s.undecoded > 0 {
		s.bytes += s.undecoded
		if err = c.steps.Grow(ctx, p, s.bytes); err == nil {
			err = c.decode(ctx, s)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		err = fault.As(fault.ClassOf(err), fmt.Errorf("step %d: %w", p.Step, err))
		c.opts.Log.Error("step failed", "step", p.Step, "err", err)
		c.steps.Fail(err)
		return send.Send(&pb.ConstructorReport{Report: &pb.ConstructorReport_Failure{Failure: rpc.ToFailure(err, -1)}})
	}
	for rest := s.rows; ; rest = rest[rowsPerReport:] {
		told := rest[:min(len(rest), rowsPerReport)]
		assembled := &pb.Assembled{Generation: p.Generation, Step: p.Step, Rows: p.Rows[len(s.rows)-len(rest):][:len(told)]}
		for _, r := range told {
			d := r.digest()
			assembled.Digests = append(assembled.Digests, d[:]...)
		}
		if err := send.Send(&pb.ConstructorReport{Report: &pb.ConstructorReport_Assembled{Assembled: assembled}}); err != nil {
			return err
		}
		if len(rest) <= rowsPerReport {
			break
		}
	}
	c.steps.Done(&deliver.Step{Generation: p.Generation, Number: p.Step, Bytes: s.bytes, Content: s})
	return nil
}

// rowsPerReport is the number of rows whose digests go in one message: at 37 bytes each below
// rpc.MaxControl.
const rowsPerReport = 65_536

// usageEvery is how often memory and waits are reported.
const usageEvery = time.Second

// report sends acknowledgements as they change and usage every second.
func (c *Constructor) report(ctx context.Context, send *session) error {
	tick := time.NewTicker(usageEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.steps.AcksChanged():
			for _, a := range c.steps.TakeAcks() {
				if err := send.Send(&pb.ConstructorReport{Report: &pb.ConstructorReport_Acked{Acked: a}}); err != nil {
					return err
				}
			}
		case <-tick.C:
			if err := send.Send(&pb.ConstructorReport{Report: &pb.ConstructorReport_Usage{Usage: c.steps.Usage()}}); err != nil {
				return err
			}
		}
	}
}
