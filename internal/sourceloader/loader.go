// Package sourceloader is the SourceLoader role: it reads sources, once for the
// whole job, and hands out their samples by position.
//
// It owns the reading pipeline (store, format, transform, order) and the samples
// it holds under a byte budget. It never decides which sample comes next: the
// planner tells it which blocks to read, constructors ask for samples by block
// and number, and any loader can answer for any block. What it forgets it can
// read again.
package sourceloader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/internal/failpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/handover"
	"github.com/millrace-data/millrace/internal/imaging"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/samples"
	"github.com/millrace-data/millrace/internal/sourceloader/spill"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/store/bucket"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/internal/telemetry"
)

// Options configure a loader. Planner and Address are required.
type Options struct {
	ID        string        // unique in the job; default: the address
	Planner   string        // address of the planner, or several, separated by commas: each is tried in turn
	Patience  time.Duration // without a planner, after which Run ends; default: no limit
	Address   string        // address to listen on, HOST:PORT or unix:PATH
	Advertise string        // HOST or HOST:PORT that others reach it at; default: the address, or the machine's name
	Security  rpc.Security  //
	Store     store.Store   // default: the local file system, and buckets
	Workers   int           // blocks read at a time; default GOMAXPROCS
	Buffer    int64         // bytes of samples to hold; default: the job spec's
	Place     int           // the share of the reading that it asks for, plus 1 (package sizing); 0: any
	Scratch   string        // folder on a local disk for what Buffer has no room for; default: see spill.Options
	Drain     time.Duration // how long fetches under way go on after ctx ended; 0: not at all
	Log       *slog.Logger  // default: discard
	// Fit is called once with the bytes that Buffer or the job asks for, and returns those to hold; nil: as many.
	Fit func(asked int64) int64
	// OnWorkers is called once with the job's number of Python workers, 0 if it has none, and the addresses of its
	// worker pools; may be nil.
	OnWorkers func(workers int, pools []string)
	// Exchange is where constructors of this process find the loader; may be nil.
	Exchange *handover.Exchange
	// Functions opens the Python functions of sources; nil: a source with one is refused.
	Functions transform.Functions
	// Environments says what their worker processes do, for the status; may be nil.
	Environments func() []Environment
	// Telemetry is where the loader is shown; nil: nowhere.
	Telemetry *telemetry.Board
}

func (o *Options) withDefaults() {
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Loader is a running SourceLoader.
type Loader struct {
	pb.UnimplementedLoaderServer
	opts      Options
	instance  uint64 // of this process
	address   string // where others reach it
	store     *store.Metered
	shared    *transform.Shared  // by all sources; complete once the job is known
	queue     *queue             // of blocks
	opens     *queue             // of sources
	cache     *cache             // nil until the job is known
	executor  *executor          // nil until then, and if there are no functions
	life      context.Context    // of what is read for fetches: it is longer than that of Run's ctx by Drain
	end       context.CancelFunc // of life
	answers   sync.Pool          // of *answer
	pictures  *imaging.Pool
	place     atomic.Uint32 // as the planner said last
	epochs    rpc.Epochs    // of planners, as they and constructors say
	ready     chan struct{} // closed when all is known of the job that a loader hears when it joins; bans come last
	readyOnce sync.Once
	send      func(*pb.LoaderReport) error // to the planner; safe for concurrent use; set before the first order
	session   atomic.Pointer[session]      // with the planner, when that has said all that comes first; nil while there is none

	mu      sync.Mutex    // guards the fields below
	job     *pb.LoaderJob // as it began; read-only
	sources []*lazySource // of the job, and those that joined since
	bans    []*pb.Ban
}

// lazySource is opened by the first block that needs it.
type lazySource struct {
	assigned *pb.Assignment
	turn     chan struct{}          // holds one token: who has taken it may open the source; reads of it wait
	source   *Source                // of who has the token
	mu       sync.Mutex             // guards last
	last     weak.Pointer[Block]    // the block that was made last, while someone has it
	workers  sync.Pool              // of *transform.Worker
	frozen   atomic.Pointer[[]byte] // digest that its manifest has to have; nil until the planner said so
	told     atomic.Bool            // the planner knows that it has another one
	awaited  atomic.Bool            // it could not be opened ahead, and is tried again after a pause
	costs    costs                  // of reading it
}

// Run serves until ctx ends. While there is no planner it goes on answering constructors and
// reading what it was asked for, and looks for one: for Options.Patience, or for ever.
func Run(ctx context.Context, opts Options) error {
	opts.withDefaults()
	if opts.Store == nil {
		any := bucket.NewAny(opts.Scratch)
		defer any.Close() // what is still read then is read for nobody
		opts.Store = any
	}
	l := &Loader{opts: opts, instance: rpc.NewInstance(), store: store.NewMetered(opts.Store), shared: transform.NewShared(0, opts.Functions), queue: newQueue(), opens: newQueue(), ready: make(chan struct{})}
	register := func(s grpc.ServiceRegistrar) { pb.RegisterLoaderServer(s, l) }
	l.place.Store(uint32(opts.Place))
	l.life, l.end = context.WithCancel(context.WithoutCancel(ctx))
	defer l.close()
	defer context.AfterFunc(ctx, l.leave)()
	return rpc.Run(ctx, opts.Address, opts.Advertise, opts.Security.Of(opts.Planner), rpc.MaxFetch, register, func(ctx context.Context, address string) error {
		l.opts.ID, l.address = cmp.Or(l.opts.ID, address), address
		defer l.opts.Exchange.Offer(address, l)()
		defer l.show()()
		return l.talk(ctx, address)
	})
}

// leave ends what is read for nobody, and what is read for fetches after a while. The planner
// deals the blocks to others meanwhile.
func (l *Loader) leave() {
	if l.opts.Drain == 0 {
		l.end()
		return
	}
	late := time.AfterFunc(l.opts.Drain, l.end)
	context.AfterFunc(l.life, func() { late.Stop() })
	select {
	case <-l.ready:
		l.cache.abandon()
	default:
	}
}

// close lets go of all blocks. The session has ended.
func (l *Loader) close() {
	l.end()
	if l.executor != nil {
		<-l.executor.over
	}
	if l.cache != nil {
		l.cache.close()
	}
}

// session is a loader's side of its stream with the planner.
type session = rpc.Session[pb.LoaderReport, pb.LoaderOrder]

// talk holds sessions with the planner until ctx ends: orders in, reports out.
func (l *Loader) talk(ctx context.Context, address string) error {
	role := rpc.Role{
		Kind: "loader", ID: l.opts.ID, Address: address, Callers: "constructors",
		Planner: l.opts.Planner, Patience: l.opts.Patience, Security: l.opts.Security, Epochs: &l.epochs, Log: l.opts.Log,
	}
	hello := func(epoch uint64) *pb.LoaderReport {
		return &pb.LoaderReport{Report: &pb.LoaderReport_Hello{Hello: &pb.LoaderHello{
			Id: l.opts.ID, Address: address, Workers: uint32(l.opts.Workers), Buffer: uint64(l.opts.Buffer),
			Protocol: rpc.Oldest, Newest: rpc.Protocol, Epoch: epoch, Place: l.place.Load(), Instance: l.instance,
		}}}
	}
	l.send = l.tell
	return l.serve(ctx, func(ctx context.Context, take func(*pb.LoaderOrder) error) error {
		err := rpc.Talk(ctx, role, pb.PlannerClient.Load, hello, func(ctx context.Context, s *session) error {
			defer l.session.Store(nil)
			hear := func(o *pb.LoaderOrder) error {
				err := take(o)
				if _, last := o.Order.(*pb.LoaderOrder_Bans); last { // of what a planner says to begin with
					l.session.Store(s)
				}
				return err
			}
			beat := &pb.LoaderReport{Report: &pb.LoaderReport_Beat{Beat: &pb.Beat{}}}
			return s.Beating(ctx, rpc.BeatEvery, beat, func() error { return s.Each(ctx, hear) })
		})
		return cmp.Or(err, context.Canceled)
	})
}

// tell tells the planner something. What there is no planner for is lost: the next one asks
// again, and is answered from memory.
func (l *Loader) tell(r *pb.LoaderReport) error {
	if s := l.session.Load(); s != nil {
		_ = s.Send(r) // whoever reads the session hears why not
	}
	return nil
}

func (l *Loader) takeJob(job *pb.LoaderJob) error {
	if l.cache != nil {
		return l.goOn(job)
	}
	l.setJob(job)
	budget := int64(job.BufferBytes)
	if l.opts.Buffer > 0 {
		budget = l.opts.Buffer
	}
	if l.opts.Fit != nil {
		budget = l.opts.Fit(budget)
	}
	if l.opts.OnWorkers != nil {
		l.opts.OnWorkers(int(job.PythonWorkers), job.WorkerPools)
	}
	disk := spill.Open(spill.Options{Dir: l.opts.Scratch, Limit: int64(job.DiskBytes), Log: l.opts.Log})
	l.cache = newCache(l.life, budget, disk, l.load)
	l.cache.alone = l.decodesAlone
	l.shared.Room, l.pictures = l.cache.room, imaging.NewPool(l.opts.Workers, l.cache.room)
	if job.SpillBytes > 0 {
		l.cache.batchDisk = spill.Open(spill.Options{Dir: l.opts.Scratch, Limit: int64(job.SpillBytes), Log: l.opts.Log, Use: batchSpillUse})
	}
	if l.opts.Functions != nil {
		var err error
		l.executor, err = newExecutor(l.life, l.cache, l.opts.Workers)
		return err
	}
	return nil
}

// decodesAlone says once that some file is so large that nothing else is decoded beside it.
func (l *Loader) decodesAlone(bytes, most int64) {
	l.opts.Log.Warn("a file takes more memory to decode than the loader has for that: such files are decoded one after the other, each alone, and the loader is over its budget",
		"bytes", bytes, "room", most, "try", "a larger resources.loader_buffer (twice the bytes), or a smaller max_decoded_pixels or max_seconds")
}

func newLazySource(a *pb.Assignment) *lazySource {
	lazy := &lazySource{assigned: a, turn: make(chan struct{}, 1)}
	lazy.turn <- struct{}{}
	return lazy
}

// open opens source i once.
func (l *Loader) open(ctx context.Context, i uint32) (*Source, *lazySource, error) {
	job, lazy := l.known(i)
	if lazy == nil {
		return nil, nil, fmt.Errorf("source %d was asked for, the loader knows of less", i)
	}
	select {
	case <-lazy.turn:
		defer func() { lazy.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	if lazy.source == nil {
		src, err := l.openAssigned(ctx, job, lazy.assigned)
		if err != nil {
			return nil, nil, err
		}
		for _, d := range doubts(src.Source) {
			l.opts.Log.Warn(d.Message, "source", src.Spec.Name, "try", d.Valid)
		}
		if l.executor != nil {
			if src.flow, err = l.executor.flow(src); err != nil {
				return nil, nil, err
			}
		}
		src.costs = &lazy.costs
		lazy.source = src
	}
	return lazy.source, lazy, nil
}

// storeIn is the loader's store, within roots if there are any.
func (l *Loader) storeIn(roots []string) store.Store {
	if len(roots) == 0 {
		return l.store
	}
	return store.NewWithin(l.store, roots)
}

// load reads a block, or makes it of another one; the cache calls it.
func (l *Loader) load(ctx context.Context, w *window) (content, error) {
	id := w.id
	src, err := l.source(ctx, id.source)
	if err != nil {
		return nil, err
	}
	banned, err := l.bannedIn(id.source, src)
	if err != nil {
		return nil, err
	}
	_, lazy := l.known(id.source)
	if err := failpoint.Error(failpoint.ReadBefore); err != nil {
		return nil, err
	}
	if b := src.reuse(lazy.lastBlock(), int64(id.seq), banned); b != nil {
		lazy.setLast(b)
		return b, nil
	}
	worker, ok := lazy.workers.Get().(*transform.Worker)
	if !ok {
		worker = src.Chain.Worker()
	}
	defer lazy.workers.Put(worker)
	c, err := src.readAgreed(ctx, l.storeIn(dataRoots(lazy.assigned)), worker, banned, w)
	switch c := c.(type) {
	case *Block:
		lazy.setLast(c)
	case *paged:
		l.opts.Log.Warn("a block fits neither in memory nor on the local disk: it is read again for each page of its samples, which is slow",
			"source", src.Spec.Name, "block", id.seq, "bytes", w.total, "pages", len(c.bounds)-1,
			"try", "a larger resources.loader_disk, or smaller or uncompressed files; millrace plan says how much is needed")
	}
	return c, err
}

func (l *Loader) index(ctx context.Context, i uint32) error {
	var src *Source
	err := l.persist(ctx, fmt.Sprintf("the index of source %d", i), func() (err error) {
		src, err = l.source(ctx, i)
		return err
	})
	if err != nil {
		return l.fail(ctx, err, i)
	}
	l.opts.Log.Info("indexed", "source", src.Spec.Name, "files", len(src.Manifest.Files), "blocks", src.Order.Blocks())
	failpoint.Hit(failpoint.IndexBefore)
	return l.tellIndexed(i, src)
}

// tellBlock tells the planner of a block, in parts if there is much to say.
func (l *Loader) tellBlock(id blockID, report *pb.BlockRead) error {
	if report.BansKnown > l.bansKnown() {
		return nil // it was read for a planner that knew more; this one has it read again
	}
	for part, more := range rpc.Parts(report) {
		part.Source, part.Seq, part.More = id.source, id.seq, more
		if err := l.send(&pb.LoaderReport{Report: &pb.LoaderReport_Block{Block: part}}); err != nil {
			return err
		}
	}
	return nil
}

// fail tells the planner why a source cannot be read, unless it knows. The session
// goes on: the planner decides what that means for the job.
func (l *Loader) fail(ctx context.Context, err error, source uint32) error {
	return l.tellFailure(ctx, err, rpc.ToFailure(err, int(source)))
}

// failBlock does so for a block, which another loader may be able to read.
func (l *Loader) failBlock(ctx context.Context, err error, id blockID) error {
	f := rpc.ToFailure(err, int(id.source))
	f.Block = id.seq + 1
	return l.tellFailure(ctx, err, f)
}

func (l *Loader) tellFailure(ctx context.Context, err error, f *pb.Failure) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, errOther) {
		return nil
	}
	l.opts.Log.Error("source failed", "source", f.Source-1, "err", err)
	return l.send(&pb.LoaderReport{Report: &pb.LoaderReport_Failure{Failure: f}})
}

// usageEvery is how often a loader reports its memory: often enough for a person, rarely enough to cost nothing.
const usageEvery = time.Second

func (l *Loader) reportUsage(ctx context.Context) error {
	tick := time.NewTicker(usageEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		select {
		case <-l.ready:
		default:
			continue
		}
		usage := l.usage(ctx)
		usage.Costs = l.takeCosts()
		if err := l.send(&pb.LoaderReport{Report: &pb.LoaderReport_Usage{Usage: usage}}); err != nil {
			return nil // the session's reader says why
		}
	}
}

// usage is what the loader says of itself, once it has a job.
func (l *Loader) usage(ctx context.Context) *pb.LoaderUsage {
	held, blocks, rereads := l.cache.usage()
	onDisk, limit, problem := l.cache.disk.Usage()
	u := &pb.LoaderUsage{
		HeldBytes: uint64(held), BudgetBytes: uint64(l.cache.budget),
		ReadBytes: uint64(l.store.Meter().Bytes), BlocksRead: blocks, BlocksReread: rereads,
		DiskBytes: uint64(onDisk), DiskBudgetBytes: uint64(limit), DiskProblem: problem,
		StaleRefused: l.epochs.Refused(), Progress: l.progress(), Reading: l.reading(),
	}
	u.Stages, u.Functions = l.engineUsage(ctx)
	return u
}

// Fetch implements the Loader service.
func (l *Loader) Fetch(req *pb.FetchRequest, stream grpc.ServerStreamingServer[pb.Frame]) error {
	a, ok := l.answers.Get().(*answer)
	if !ok {
		a = &answer{}
	}
	a.sets = slices.Grow(a.sets[:0], len(req.Blocks))[:len(req.Blocks)]
	var at atomic.Int64
	var held *holding
	var wire *samples.Wire
	err := rpc.Hold(stream, req.Hears, 1, l.waiting(req, &at), func() (err error) {
		if held, err = l.gather(stream.Context(), req, a.sets, &at, nil); err == nil {
			wire, err = samples.NewWire(a.sets)
		}
		return err
	})
	defer held.end()
	for i := range a.sets {
		a.sets[i].Kept, a.sets[i].Images = nil, nil // they would hold the blocks
	}
	if err != nil {
		return rpc.ToStatus(err)
	}
	defer l.answers.Put(a) // the wire borrows from it
	defer wire.Release()
	return rpc.SendWritten(stream, &pb.FetchHeader{BodySize: uint64(wire.Size)}, func(to io.Writer) error {
		_, err := wire.WriteTo(to)
		return err
	})
}

// answer is the memory of one answer to a fetch, which is used again.
type answer struct {
	sets []samples.Set
}

// gather puts the samples asked for into sets, one for each block, and says what they take. at says which
// block it is at; with a loan, blocks in memory lend them.
func (l *Loader) gather(ctx context.Context, req *pb.FetchRequest, sets []samples.Set, at *atomic.Int64, lent *loan) (*holding, error) {
	l.epochs.Hear(req.Epoch)
	select {
	case <-l.ready:
	case <-ctx.Done():
		return nil, fault.Lostf("loader %s has no job yet: %w", l.opts.ID, ctx.Err())
	}
	held := &holding{cache: l.cache}
	var pictures decoding
	for i, want := range req.Blocks {
		at.Store(int64(i))
		err := l.checked(ctx, blockID{want.Source, want.Seq}, want.Sum, func(b content) error { return l.cache.give(b, want, &sets[i], lent) })
		if err != nil {
			return held, err
		}
		held.take(setBytes(&sets[i]))
		if err := pictures.add(ctx, l, want, &sets[i]); err != nil {
			return held, err
		}
		if err := failpoint.Error(failpoint.FetchMiddle); err != nil {
			return held, err
		}
	}
	at.Store(int64(len(req.Blocks)))
	return held, pictures.run(ctx, l.pictures, held)
}
