package metamorphic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/constructor"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/rig"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/sim"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

const plannerAddress = "planner:7000"

// world is one run's service.
type world struct {
	seed    uint64
	opts    Options
	log     *slog.Logger
	job     *jobspec.Job
	changes []change.Change
	network *sim.Network
	files   *slow
	ctx     context.Context
	group   *errgroup.Group

	mu    sync.Mutex // guards the fields below, never held while waiting
	lives map[string]*life
	disk  *vfs.MemFS // of the planner
}

// life is a role that is to run.
type life struct {
	host   string
	end    context.CancelFunc
	killed bool
	leave  bool
	pause  time.Duration // before its next life
}

func newWorld(ctx context.Context, seed uint64, opts Options, log *slog.Logger) (w *world, err error) {
	w = &world{seed: seed, opts: opts, log: log, lives: map[string]*life{}, disk: vfs.NewCrashableMem(), files: &slow{Store: files()}}
	if w.job, err = opts.job(); err != nil {
		return nil, err
	}
	if w.changes, err = opts.changes(); err != nil {
		return nil, err
	}
	faults := sim.Faults{Delay: 2 * time.Millisecond}
	if opts.Lossy {
		faults.Reset, faults.Slow = 1e-4, 1e-3
	}
	w.network = sim.NewNetwork(seed, faults)
	w.group, w.ctx = errgroup.WithContext(ctx)
	w.start("planner")
	for i := range opts.Loaders {
		w.start(fmt.Sprintf("loader-%d", i))
	}
	for i := range opts.Constructors {
		w.start(fmt.Sprintf("constructor-%d", i))
	}
	return w, nil
}

// start has a role run from now on.
func (w *world) start(id string) {
	l := &life{}
	w.mu.Lock()
	_, there := w.lives[id]
	if !there {
		w.lives[id] = l
	}
	w.mu.Unlock()
	if !there {
		w.group.Go(func() error { return w.keep(id, l) })
	}
}

// keep runs the lives of a role. Each has a host of its own.
func (w *world) keep(id string, l *life) error {
	for n := 1; ; n++ {
		living, end := context.WithCancel(w.ctx)
		w.mu.Lock()
		l.host, l.end, l.killed, l.pause = fmt.Sprintf("%s.%d", id, n), end, false, 50*time.Millisecond
		host := l.host
		w.mu.Unlock()
		err := w.run(living, id, host)
		end()
		w.mu.Lock()
		killed, leave, pause := l.killed, l.leave, l.pause
		w.mu.Unlock()
		if w.ctx.Err() != nil || leave {
			return nil
		}
		w.network.Kill(host)
		if !killed && fault.ClassOf(err) != fault.Lost {
			return fmt.Errorf("%s ended: %w", host, cmp.Or(err, errEnded))
		}
		w.log.Info("the role ended, and starts again", "host", host, "err", err)
		if err := sleep(w.ctx, pause); err != nil {
			return nil
		}
	}
}

var errEnded = errors.New("it ended by itself")

// on is the network as a host sees it. The calls of every grpcEvery-th seed go over gRPC.
func (w *world) on(host string) rpc.Security {
	if w.seed%grpcEvery == 0 {
		return rpc.Over(w.network.Host(host))
	}
	return rpc.Through(w.network.Carrier(host))
}

const grpcEvery = 10

// run runs one life.
func (w *world) run(ctx context.Context, id, host string) error {
	sec, log := w.on(host), w.log.With("host", host)
	role, _, _ := strings.Cut(id, "-")
	switch role {
	case "loader":
		return sourceloader.Run(ctx, sourceloader.Options{ID: id, Planner: plannerAddress, Address: host + ":1", Security: sec, Store: w.files, Workers: 2, Log: log})
	case "constructor":
		return constructor.Run(ctx, constructor.Options{ID: id, Planner: plannerAddress, Address: host + ":1", Security: sec, Log: log})
	}
	w.mu.Lock()
	disk := w.disk
	w.mu.Unlock()
	return planner.Run(ctx, planner.Options{
		Job: w.job, Address: plannerAddress, Security: sec, Changes: w.changes, LogDir: "/log", LogFS: disk,
		Loaders: w.opts.Loaders, Constructors: w.opts.Constructors, StartWindow: 10 * time.Minute, Log: log,
		KeyFrame: func(step int64) bool {
			return rig.Random(w.seed, fmt.Sprintf("key frame %d", step)).IntN(int(w.seed%16)+1) == 0
		},
	})
}

// kill ends a role in the middle of what it does. Nothing that it says in its last moments
// reaches anyone, and what its disk has not synced may be lost.
func (w *world) kill(id string, pause time.Duration, leave bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lives[id]
	if l == nil || l.host == "" || l.leave {
		return
	}
	l.killed, l.leave, l.pause = true, leave, pause
	w.network.Kill(l.host)
	l.end()
	if id == "planner" {
		w.disk = w.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rig.Random(w.seed, l.host)})
	}
}

// remove ends a loader for good, unless it is the last.
func (w *world) remove(id string) {
	w.mu.Lock()
	left := 0
	for name, l := range w.lives {
		if strings.HasPrefix(name, "loader") && !l.leave {
			left++
		}
	}
	w.mu.Unlock()
	if left > 1 {
		w.kill(id, 0, true)
	}
}

// isolate keeps a role apart for a time.
func (w *world) isolate(id string, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.lives[id]; l != nil && l.host != "" {
		w.network.Isolate(l.host, d)
	}
}

// slow is a store whose files take long to open.
type slow struct {
	store.Store
	delay atomic.Int64 // ns
}

// Open implements store.Store.
func (s *slow) Open(ctx context.Context, obj store.Object) (store.Handle, error) {
	if err := sleep(ctx, time.Duration(s.delay.Load())); err != nil {
		return nil, err
	}
	return s.Store.Open(ctx, obj)
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
