package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/constructor"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/jobspec"
)

// Options configure a run. The zero value is the run of seed 0.
type Options struct {
	Seed uint64
	Log  *slog.Logger // of all roles; default: discard
	// Tokenless has ranks that are killed before they saved a state begin without one, too.
	// The service tells by heuristics whether all have; it may refuse.
	Tokenless bool
	// Tight gives constructors room for one step only. Ranks whose constructor dies in the
	// wrong moment then may wait for each other until their deadline.
	Tight bool
	// GRPC has calls go over gRPC, on connections in memory. The calls of every grpcEvery-th
	// seed do so in any case; of others the network carries their messages.
	GRPC bool
	// Steps, if positive, is the length of a run in which roles and ranks live: short steps,
	// with memory for what they read, under faults of the network alone.
	Steps int64
}

const grpcEvery = 20

// Result is what a run did.
type Result struct {
	Recipe   string
	Steps    int64         // checked; those that were delivered again count again
	Restarts int           // of roles, after they were killed or lost their planner
	Resumes  int           // of all ranks together
	Confused int           // of them, those that the service asked for, as some rank of the life before went on
	Took     time.Duration // of the clock of the run
	Counts   Counts
}

// Sizes of every run.
const (
	loaders      = 3
	constructors = 2 // that serve ranks
)

const plannerAddress = "planner:7000"

// startWindow is longer than faults can keep a rank from joining.
const startWindow = 10 * time.Minute

// Bounds of a run's time. Faults end after faultTime at the latest; then all that is
// left has to be delivered within calmTime, far above what any timeout of a role needs.
const (
	faultTime = 2 * time.Minute
	calmTime  = 30 * time.Minute
)

// world is one run.
type world struct {
	opts    Options
	rng     *rand.Rand // of the choices before the start
	network *Network
	recipe  *recipe
	job     *jobspec.Job
	changes []change.Change
	want    *answer
	team    *team
	grpc    bool
	logDir  string // of the planner; "" keeps no log
	shadows int    // loaders beside the others
	hot     bool   // they read along
	nodes   nodes

	mu       sync.Mutex // guards the fields below, never held while waiting
	lives    map[string]life
	restarts int
	disk     *vfs.MemFS // of the planner; what is not synced may be lost with it
}

// life is a role that runs.
type life struct {
	host   string
	killed bool
	end    context.CancelFunc
}

// Run runs one job under the faults of a seed. An error says what a rank was given that it
// should not have been, which role failed, or who waits when nothing is wrong any more.
func Run(ctx context.Context, opts Options) (*Result, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	w, err := newWorld(opts)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	err = w.run(ctx)
	res := &Result{
		Recipe: w.recipe.name, Steps: w.team.checked, Restarts: w.restarts, Resumes: w.team.resumes, Confused: w.team.confusions,
		Took: time.Since(begin), Counts: w.network.Counts(),
	}
	if err != nil {
		err = fmt.Errorf("seed %d, %s: %w", opts.Seed, w.recipe.name, err)
	}
	return res, err
}

func newWorld(opts Options) (w *world, err error) {
	w = &world{opts: opts, rng: random(opts.Seed, "run"), grpc: opts.GRPC || opts.Seed%grpcEvery == 0, lives: map[string]life{}}
	w.recipe = &recipes[w.rng.IntN(len(recipes))]
	res := resources{pick(w.rng, 1, 4e3, 1<<20), pick(w.rng, 10e3, 40e3, 1<<20), pick(w.rng, 1, 2, 4, 8), pick(w.rng, 1, 20, 200)}
	if opts.Tight {
		res.constructorBuffer = 1
	}
	if opts.Steps > 0 {
		w.recipe, res = measured.long(opts.Steps), resources{1 << 20, 1 << 20, 4, 200}
	}
	if w.job, err = w.recipe.parse(res); err != nil {
		return nil, err
	}
	if w.changes, err = w.recipe.changesOf(); err != nil {
		return nil, err
	}
	if w.want, err = w.recipe.answer(); err != nil {
		return nil, err
	}
	if w.rng.IntN(2) == 0 {
		w.logDir, w.disk = "/log", vfs.NewCrashableMem()
	}
	beside := random(opts.Seed, "shadows")
	w.shadows, w.hot = pick(beside, 0, 0, 1, 1, 2), beside.IntN(2) == 0
	if opts.Steps > 0 {
		w.shadows = 0
	}
	w.nodes = drawNodes(opts)
	faults := drawFaults(w.rng)
	if calls := random(opts.Seed, "calls"); calls.IntN(2) == 0 {
		faults.Cut = pow10(-4 + 1.5*calls.Float64()) // of a message
	}
	w.network = NewNetwork(opts.Seed, faults)
	w.team = newTeam(w)
	return w, nil
}

func pick(rng *rand.Rand, of ...int) int { return of[rng.IntN(len(of))] }

// drawFaults draws which kinds of faults a run has: few at a time show more than all at once.
func drawFaults(rng *rand.Rand) Faults {
	rare := func() float64 {
		if rng.IntN(2) == 0 {
			return 0
		}
		return pow10(-4 + 2*rng.Float64()) // of a write
	}
	return Faults{
		Delay: time.Duration(20+rng.IntN(2000)) * time.Microsecond,
		Slow:  rare(), Stall: rare(), Reset: rare() / 5, Hole: rare() / 20, Deny: 20 * rare(),
		StallTime: time.Duration(10+rng.IntN(3000)) * time.Millisecond,
	}
}

// run starts the roles and the ranks, and ends them when all steps are checked.
func (w *world) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.keep(ctx, "planner", w.plan) })
	for i := range loaders + w.shadows {
		g.Go(func() error { return w.keep(ctx, fmt.Sprintf("loader-%d", i), w.load) })
	}
	for i := range w.nodes.constructors() {
		g.Go(func() error { return w.keep(ctx, fmt.Sprintf("constructor-%d", i), w.construct) })
	}
	g.Go(func() error { return w.harm(ctx) })
	g.Go(func() error {
		defer stop()
		return w.team.train(ctx)
	})
	if err := g.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// on is the network as a host sees it. A role cannot tell which one it has.
func (w *world) on(host string) rpc.Security {
	if w.grpc {
		return rpc.Over(w.network.Host(host))
	}
	return rpc.Through(w.network.Carrier(host))
}

func (w *world) log(host string) *slog.Logger { return w.opts.Log.With("host", host) }

func (w *world) plan(ctx context.Context, _, host string) error {
	w.mu.Lock()
	disk := w.disk
	w.mu.Unlock()
	opts := planner.Options{
		Job: w.job, Address: plannerAddress, Security: w.on(host), Changes: w.changes, LogDir: w.logDir,
		Loaders: loaders, Shadows: w.shadows, HotShadows: w.hot, Constructors: constructors, RanksPerNode: w.nodes.ranks, StartWindow: startWindow, Log: w.log(host),
		KeyFrame: func(step int64) bool {
			return random(w.opts.Seed, fmt.Sprintf("key frame %d", step)).IntN(int(w.opts.Seed%16)+1) == 0
		},
	}
	if disk != nil {
		opts.LogFS = disk
	}
	err := planner.Run(ctx, opts)
	return fault.As(fault.Bug, cmp.Or(err, errEnded)) // only a kill is to end it
}

var errEnded = errors.New("it ended by itself")

func (w *world) load(ctx context.Context, id, host string) error {
	return sourceloader.Run(ctx, sourceloader.Options{
		ID: id, Planner: plannerAddress, Address: host + ":1", Security: w.on(host), Store: files(), Workers: 2, Log: w.log(host),
	})
}

func (w *world) construct(ctx context.Context, id, host string) error {
	return constructor.Run(ctx, constructor.Options{ID: id, Planner: plannerAddress, Address: host + ":1", Security: w.on(host), Drain: drainLimit, Node: w.nodes.of[id], Log: w.log(host)})
}

// drainLimit is how long a constructor that is drained may wait for its ranks.
const drainLimit = 5 * time.Second

// keep runs a role, and starts it again when it was killed or lost its planner, as an
// engine such as Kubernetes does. Every life has a host of its own.
func (w *world) keep(ctx context.Context, id string, start func(ctx context.Context, id, host string) error) error {
	rng := random(w.opts.Seed, id)
	for n := 1; ; n++ {
		host := fmt.Sprintf("%s.%d", id, n)
		living, end := context.WithCancel(ctx)
		w.mu.Lock()
		w.lives[id] = life{host: host, end: end}
		w.mu.Unlock()
		err := start(living, id, host)
		end()
		w.mu.Lock()
		killed := w.lives[id].killed
		delete(w.lives, id)
		if ctx.Err() == nil {
			w.restarts++
		}
		w.mu.Unlock()
		if ctx.Err() != nil {
			return nil
		}
		w.network.Kill(host)
		if err != nil && !killed && fault.ClassOf(err) != fault.Lost {
			return fmt.Errorf("%s ended: %w", host, err)
		}
		w.log(host).Info("the role ended, and starts again", "err", err)
		select {
		case <-time.After(between(rng, 50*time.Millisecond, 3*time.Second)):
		case <-ctx.Done():
			return nil
		}
	}
}

// kill ends a role in the middle of what it does. Nothing that it says in its last
// moments reaches anyone.
func (w *world) kill(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, ok := w.lives[id]
	if !ok {
		return
	}
	l.killed = true
	w.lives[id] = l
	w.network.Kill(l.host)
	l.end()
	if id == "planner" && w.disk != nil {
		w.disk = w.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: random(w.opts.Seed, l.host)})
	}
}

// drain tells a role to end in order, as SIGTERM does.
func (w *world) drain(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l, ok := w.lives[id]; ok {
		l.killed = true
		w.lives[id] = l
		l.end()
	}
}

// hostOf is where a role runs; "" while it does not.
func (w *world) hostOf(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lives[id].host
}
