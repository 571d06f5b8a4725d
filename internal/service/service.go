// Package service starts a whole Millrace service on one machine: a planner,
// loaders and constructors, in this process or each in its own.
//
// It owns the wiring and the life of the roles, nothing else: each role is the
// same real server either way, and they talk over sockets. Only the samples that
// loaders and constructors of one process hand over take a shorter way.
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/constructor"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/handover"
	"github.com/millrace-data/millrace/internal/planner"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/scaling"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/sizing"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/internal/telemetry"
	"github.com/millrace-data/millrace/jobspec"
)

// Options configure a service. Job is required.
type Options struct {
	Job          *jobspec.Job
	Address      string              // of the planner; default a free port on 127.0.0.1
	Advertise    string              // host that trainers reach it at; default: that of the address, or the machine's name
	Security     rpc.Security        //
	LogDir       string              // of the step log; "" keeps none
	LogMirror    string              // URL of the object store with the log's second copy (object.Open); "" keeps none
	LogRetain    int                 // steps that the log keeps below those that are needed (planner.Options); 0: all
	Loaders      int                 // default 1, or those of Layout
	Layout       *sizing.Layout      // of loaders: what each reads, with how many workers and how much memory; nil: sources are dealt in turn
	Scale        scaling.Options     // have more loaders than these, up to Most, as the mix asks for them; its Fleet is not used
	Shadows      int                 // loaders beside them that stand by for one that is lost
	HotShadows   bool                // they read what those they stand by for read; else they only have the sources open
	Constructors int                 // default 1
	Prefetch     int                 // default: the job spec's
	Workers      int                 // of each loader; default GOMAXPROCS
	Scratch      string              // folder on a local disk for what loaders' memory has no room for; default: see spill.Options
	AllowRoots   []string            // folders that sources which join are read from; default: see planner.Options
	Changes      []change.Change     // made before the first step is planned, unless the log has them
	StartWindow  time.Duration       // of the planner; default its own. Processes have the default
	Log          *slog.Logger        // default: discard
	Registry     compile.Registry    // strategies and policies of the program; processes have their binary's
	Functions    transform.Functions // of sources, in this process; processes have their own

	// Memory says how much of their budgets roles get; nil: all.
	Memory *Memory

	Environments func() []sourceloader.Environment // what the worker processes of Functions do, for the status; may be nil
	// Executable runs each role as a process of its own: the millrace binary.
	// SpecFile is the job spec it is given, ChangesFile a file of Changes.
	Executable  string
	SpecFile    string
	ChangesFile string
	Stderr      io.Writer // of the processes, written to by all at a time; default os.Stderr

	Telemetry      *telemetry.Board // where the roles of this process are shown; nil: nowhere
	TelemetryFlags TelemetryFlags   // what the processes get
}

// Limits of options and flags, so that a slip of the finger does not fill a machine.
const (
	MaxLoaders  = 4096    // ten times the loaders of the largest job that was measured
	MaxPrefetch = 1 << 20 // steps, as in a spec
)

// check refuses what no service can be started with.
func (o *Options) check() error {
	if o.Job == nil {
		return fault.Userf("there is no job to serve: pass one that Load returned")
	}
	for _, n := range []struct {
		name        string
		value, most int
	}{
		{"Loaders", o.Loaders, MaxLoaders}, {"Shadows", o.Shadows, MaxLoaders}, {"Constructors", o.Constructors, math.MaxInt},
		{"Prefetch", o.Prefetch, MaxPrefetch}, {"Workers", o.Workers, math.MaxInt},
	} {
		switch {
		case n.value < 0:
			return fault.Userf("Options.%s is %d, valid is 0 or more", n.name, n.value)
		case n.value > n.most:
			return fault.Userf("Options.%s is %d, valid is %d or less", n.name, n.value, n.most)
		}
	}
	return nil
}

func (o *Options) withDefaults() {
	if o.Address == "" {
		o.Address = "127.0.0.1:0"
	}
	if o.Layout != nil {
		o.Loaders = len(o.Layout.Loaders)
	}
	o.Loaders, o.Constructors = max(o.Loaders, 1), max(o.Constructors, 1)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Stderr == nil {
		o.Stderr = os.Stderr
	}
}

// Run starts the service, calls use with the planner's address, and stops
// everything when use returns or ctx ends. It returns use's error, or the first
// role's that ended before. Options that cannot be are of class user.
func Run(ctx context.Context, opts Options, use func(ctx context.Context, address string) error) error {
	if err := opts.check(); err != nil {
		return err
	}
	if use == nil {
		return fault.Userf("nothing uses the service: pass a function that is called with its address")
	}
	opts.withDefaults()
	dir, err := socketDir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	roles, stop := context.WithCancel(ctx)
	defer stop()
	g, roles := errgroup.WithContext(roles)
	address := make(chan string, 1)
	start := inProcess
	if opts.Executable != "" {
		start = asProcesses
	}
	start(roles, g, &opts, dir, address)
	g.Go(func() error {
		defer stop()
		select {
		case a := <-address:
			err := use(roles, a)
			if fault.ClassOf(err) == fault.Lost {
				await(roles) // a role that ended says more than who missed it
			}
			return err
		case <-roles.Done():
			return nil
		}
	})
	err = g.Wait()
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return nil
	}
	return err
}

// longestTemp is the longest folder for temporary files that has room for sockets:
// their whole path may have 103 bytes on some systems.
const longestTemp = 70

// socketDir makes a private folder for unix sockets: in the system's for temporary
// files, or in /tmp if that one is too long or cannot be written to.
func socketDir() (string, error) {
	temp := os.TempDir()
	if len(temp) <= longestTemp {
		if dir, err := os.MkdirTemp(temp, "millrace-*"); err == nil {
			return dir, nil
		}
	}
	dir, err := os.MkdirTemp("/tmp", "millrace-*")
	if err != nil {
		return "", fault.Userf("making a folder for sockets in %s and in /tmp: %w; set TMPDIR to a folder that can be written to, with a path of at most %d bytes", temp, err, longestTemp)
	}
	return dir, nil
}

// await waits a moment for a role to end.
func await(roles context.Context) {
	select {
	case <-roles.Done():
	case <-time.After(time.Second):
	}
}

// private is where a loader or constructor listens: on a unix socket, which only
// this user can reach. With TLS or other machines they run as processes of their
// own with addresses of their own.
func private(dir, role string, i int) string {
	return "unix:" + filepath.Join(dir, fmt.Sprintf("%s%d.sock", role[:1], i))
}

func inProcess(ctx context.Context, g *errgroup.Group, opts *Options, dir string, address chan string) {
	ready, exchange := make(chan string, 1), new(handover.Exchange)
	var at string // of the planner; set before a loader starts
	loaders := opts.fleet(func(ctx context.Context, i int) error {
		part := opts.part(i)
		return sourceloader.Run(ctx, sourceloader.Options{
			ID: loaderName(i), Planner: at, Address: private(dir, "loader", i), Place: part.place, Buffer: part.buffer,
			Security: opts.Security, Workers: part.workers, Scratch: opts.Scratch, Log: opts.Log, Exchange: exchange, Functions: opts.Functions, Environments: opts.Environments, Telemetry: opts.Telemetry, Fit: opts.Memory.loaderFit(),
		})
	})
	scale := opts.Scale
	if scale.Most > opts.Loaders {
		scale.Fleet = loaders
	}
	g.Go(func() error {
		return planner.Run(ctx, planner.Options{
			Job: opts.Job, Address: opts.Address, Advertise: opts.Advertise, Security: opts.Security, LogDir: opts.LogDir, LogMirror: opts.LogMirror, LogRetain: opts.LogRetain,
			Loaders: opts.Loaders, Shadows: opts.Shadows, HotShadows: opts.HotShadows, Deal: opts.deal(), Constructors: opts.Constructors, Prefetch: opts.Prefetch, Changes: opts.Changes, AllowRoots: opts.AllowRoots, Log: opts.Log, Registry: opts.Registry,
			StartWindow: opts.StartWindow, Scale: scale, Serving: func(a string) { ready <- a }, Beside: exchange.Has, Telemetry: opts.Telemetry,
		})
	})
	g.Go(func() error {
		select {
		case at = <-ready:
		case <-ctx.Done():
			return nil
		}
		g.Go(func() error { return loaders.Run(ctx) })
		for i := range opts.Constructors {
			g.Go(func() error {
				return constructor.Run(ctx, constructor.Options{
					ID: fmt.Sprintf("constructor-%d", i), Planner: at, Address: dataAddress(opts.Address), Advertise: opts.Advertise,
					Security: opts.Security, Log: opts.Log, Exchange: exchange, Telemetry: opts.Telemetry, Fit: opts.Memory.constructorFit(),
				})
			})
		}
		address <- at
		return nil
	})
}

// dataAddress is where constructors listen: beside the planner, on a port of
// their own, since trainers connect to them.
func dataAddress(planner string) string {
	if host, ok := hostOf(planner); ok {
		return host + ":0"
	}
	return "127.0.0.1:0"
}
