package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/internal/planner"
	"github.com/millrace-data/millrace/internal/planner/compile"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/strategy"
)

// cycleStrategy names the strategy of the planning cycle's measurement: rows are
// evened and dealt to DP ranks by a quadratic cost, and the samples are divided
// over all ranks by another one, as for a second module.
const cycleStrategy = "plancycle"

// cycleTimes are the times of planning one step.
type cycleTimes struct {
	Step   int64
	Draws  []cycleSpan // mix and packing, as far as blocks were known
	Rows   cycleSpan   // rows were placed
	Second cycleSpan   // beside it, samples were divided over all ranks
	Placed cycleSpan   // both
}

type cycleSpan struct{ From, To time.Time }

// split returns the parts of spans before a moment and after it.
func split(moment time.Time, spans ...cycleSpan) (before, after time.Duration) {
	for _, s := range spans {
		late := min(max(s.To.Sub(moment), 0), s.To.Sub(s.From))
		before, after = before+s.To.Sub(s.From)-late, after+late
	}
	return before, after
}

// cycleWatch is the strategy, timed.
type cycleWatch struct {
	text, other cost.Model
	ranks       balance.Balancer
	costs       []int64
	times       []cycleTimes
	draws       []cycleSpan // of the step that is not placed yet
}

func newCycleWatch() (*cycleWatch, error) {
	text, err := cost.Parse("quadratic(a=24576, b=1)")
	if err != nil {
		return nil, err
	}
	other, err := cost.Parse("quadratic(a=4096, b=3)")
	return &cycleWatch{text: text, other: other}, err
}

func (w *cycleWatch) plan(s *strategy.Step) error {
	began := time.Now()
	g := s.Graph(dgraph.Text)
	g.Mix(s.Schedule())
	drawn := time.Now()
	w.draws = append(w.draws, cycleSpan{began, drawn})
	if s.Buffer() == nil { // a block is missing: the draw is kept
		return g.Plan()
	}
	m := cycleTimes{Step: s.Number(), Draws: w.draws}
	w.draws = nil
	// The second module depends on the draw only.
	second := make(chan error, 1)
	go func() {
		err := w.secondModule(s)
		m.Second = cycleSpan{drawn, time.Now()}
		second <- err
	}()
	g.Distribute("dp", 1)
	g.Cost(w.text)
	g.Balance(strategy.Balance{Level: strategy.Interleaved})
	err := g.Plan()
	m.Rows = cycleSpan{drawn, time.Now()}
	err = cmp.Or(err, <-second)
	m.Placed = cycleSpan{drawn, time.Now()}
	// A step that was placed ahead is placed again if the job is moved before it.
	w.times = slices.DeleteFunc(w.times, func(t cycleTimes) bool { return t.Step >= m.Step })
	w.times = append(w.times, m)
	return err
}

// secondModule divides the samples that have a row over all ranks.
func (w *cycleWatch) secondModule(s *strategy.Step) error {
	w.costs = w.costs[:0]
	for i, row := range s.RowOf() {
		if row >= 0 {
			c, err := w.other.Cost(cost.Sample{Tokens: int64(s.Buffer().Tokens[i])})
			if err != nil {
				return err
			}
			w.costs = append(w.costs, c)
		}
	}
	_, err := w.ranks.Partition(w.costs, balance.Options{Bins: s.Tree().World()})
	return err
}

// cyclePlanArgs are the arguments of the role cycle-plan: a planner.
type cyclePlanArgs struct {
	Spec, Address string
	LogDir        string // of the step log
	Loaders       int
	Profile       string
}

// cyclePlanRole reports its address, and at the end its times.
func cyclePlanRole(ctx context.Context, arg string) error {
	var a cyclePlanArgs
	if err := json.Unmarshal([]byte(arg), &a); err != nil {
		return err
	}
	watch, err := newCycleWatch()
	if err != nil {
		return err
	}
	job, err := jobspec.Load(a.Spec)
	if err != nil {
		return err
	}
	defer profiled(a.Profile)()
	var emitted error
	err = planner.Run(ctx, planner.Options{
		Job: job, Address: a.Address, LogDir: a.LogDir, Loaders: a.Loaders, Constructors: cycleConstructors,
		Registry: compile.Registry{Strategies: strategy.Set{cycleStrategy: watch.plan}},
		Serving:  func(address string) { emitted = emit(address) },
	})
	return errors.Join(err, emitted, emit(watch.times))
}

// cycleLoadArgs are the arguments of the role cycle-load: a loader that makes up
// the lengths of blocks, the same for every loader.
type cycleLoadArgs struct {
	Planner, ID string
}

// cycleLoaded counts the loaders' reports.
type cycleLoaded struct {
	Samples, Bytes int64 // of blocks
}

func cycleLoadRole(ctx context.Context, arg string) error {
	var a cycleLoadArgs
	if err := json.Unmarshal([]byte(arg), &a); err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	conn, err := rpc.Dial(a.Planner, rpc.Security{})
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := pb.NewPlannerClient(conn).Load(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	hello := &pb.LoaderReport{Report: &pb.LoaderReport_Hello{Hello: &pb.LoaderHello{Id: a.ID, Address: "127.0.0.1:1"}}}
	if err := stream.Send(hello); err != nil {
		return err
	}
	var loaded cycleLoaded
	for {
		order, err := stream.Recv()
		if ctx.Err() != nil || errors.Is(err, io.EOF) {
			return emit(loaded)
		}
		if err != nil {
			return err
		}
		report := cycleAnswer(order)
		if report == nil {
			continue
		}
		if b := report.GetBlock(); b != nil {
			loaded.Samples += int64(len(b.Lengths))
			loaded.Bytes += int64(proto.Size(report))
		}
		if err := stream.Send(report); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// cycleAnswer is what a loader reports on an order; nil for one without an answer.
func cycleAnswer(order *pb.LoaderOrder) *pb.LoaderReport {
	switch o := order.Order.(type) {
	case *pb.LoaderOrder_Index:
		manifest := sha256.Sum256(fmt.Appendf(nil, "plancycle %d", o.Index.Source))
		return &pb.LoaderReport{Report: &pb.LoaderReport_Indexed{Indexed: &pb.SourceIndexed{
			Source: o.Index.Source, Blocks: 1 << 20, Manifest: manifest[:], Files: 1, Bytes: 1 << 30,
		}}}
	case *pb.LoaderOrder_Read:
		return &pb.LoaderReport{Report: &pb.LoaderReport_Block{Block: cycleBlockRead(o.Read)}}
	}
	return nil
}

// cycleBlockRead is the metadata of a block: many short samples, few long ones.
func cycleBlockRead(read *pb.ReadBlock) *pb.BlockRead {
	rng := rand.New(rand.NewPCG(uint64(read.Source), read.Seq))
	b := &pb.BlockRead{Source: read.Source, Seq: read.Seq, Lengths: make([]uint32, cycleBlock)}
	for i := range b.Lengths {
		b.Lengths[i] = uint32(min(max(cycleMean*rng.ExpFloat64(), 1), planLength))
	}
	return b
}
