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
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/constructor"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/handover"
	"github.com/millrace-data/millrace/internal/planner"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/jobspec"
)

// Options configure a service. Job is required.
type Options struct {
	Job          *jobspec.Job
	Address      string           // of the planner; default a free port on 127.0.0.1
	Advertise    string           // host that trainers reach it at; default: that of the address, or the machine's name
	Security     rpc.Security     //
	LogDir       string           // of the step log; "" keeps none
	Loaders      int              // default 1
	Constructors int              // default 1
	Prefetch     int              // default: the job spec's
	Workers      int              // of each loader; default GOMAXPROCS
	Scratch      string           // folder on a local disk for what loaders' memory has no room for; default: see spill.Options
	AllowRoots   []string         // folders that sources which join are read from; default: see planner.Options
	Changes      []change.Change  // made before the first step is planned, unless the log has them
	StartWindow  time.Duration    // of the planner; default its own. Processes have the default
	Log          *slog.Logger     // default: discard
	Registry     compile.Registry // strategies and policies of the program; processes have their binary's
	// Executable runs each role as a process of its own: the millrace binary.
	// SpecFile is the job spec it is given, ChangesFile a file of Changes.
	Executable  string
	SpecFile    string
	ChangesFile string
	Stderr      io.Writer // of the processes, written to by all at a time; default os.Stderr
}

func (o *Options) withDefaults() {
	if o.Address == "" {
		o.Address = "127.0.0.1:0"
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
// role's that ended before.
func Run(ctx context.Context, opts Options, use func(ctx context.Context, address string) error) error {
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
	g.Go(func() error {
		return planner.Run(ctx, planner.Options{
			Job: opts.Job, Address: opts.Address, Advertise: opts.Advertise, Security: opts.Security, LogDir: opts.LogDir,
			Loaders: opts.Loaders, Constructors: opts.Constructors, Prefetch: opts.Prefetch, Changes: opts.Changes, AllowRoots: opts.AllowRoots, Log: opts.Log, Registry: opts.Registry,
			StartWindow: opts.StartWindow, Serving: func(a string) { ready <- a },
		})
	})
	g.Go(func() error {
		var at string
		select {
		case at = <-ready:
		case <-ctx.Done():
			return nil
		}
		for i := range opts.Loaders {
			g.Go(func() error {
				return sourceloader.Run(ctx, sourceloader.Options{
					ID: fmt.Sprintf("loader-%d", i), Planner: at, Address: private(dir, "loader", i),
					Security: opts.Security, Workers: opts.Workers, Scratch: opts.Scratch, Log: opts.Log, Exchange: exchange,
				})
			})
		}
		for i := range opts.Constructors {
			g.Go(func() error {
				return constructor.Run(ctx, constructor.Options{
					ID: fmt.Sprintf("constructor-%d", i), Planner: at, Address: dataAddress(opts.Address), Advertise: opts.Advertise,
					Security: opts.Security, Log: opts.Log, Exchange: exchange,
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

// asProcesses runs each role with the millrace binary.
func asProcesses(ctx context.Context, g *errgroup.Group, opts *Options, dir string, address chan string) {
	args := []string{"planner", opts.SpecFile, "--listen", opts.Address,
		"--loaders", strconv.Itoa(opts.Loaders), "--constructors", strconv.Itoa(opts.Constructors)}
	if opts.LogDir != "" {
		args = append(args, "--log-dir", opts.LogDir)
	}
	if opts.Advertise != "" {
		args = append(args, "--advertise", opts.Advertise)
	}
	if opts.ChangesFile != "" {
		args = append(args, "--changes", opts.ChangesFile)
	}
	for _, root := range opts.AllowRoots {
		args = append(args, "--allow-root", root)
	}
	if opts.Prefetch != 0 {
		args = append(args, "--prefetch", strconv.Itoa(opts.Prefetch))
	}
	g.Go(func() error {
		return spawn(ctx, opts, args, func(at string) {
			for i := range opts.Loaders {
				g.Go(func() error {
					return spawn(ctx, opts, loaderArgs(opts, at, dir, i), nil)
				})
			}
			for i := range opts.Constructors {
				g.Go(func() error {
					return spawn(ctx, opts, []string{"constructor", "--planner", at, "--id", fmt.Sprintf("constructor-%d", i),
						"--listen", dataAddress(opts.Address), "--advertise", opts.Advertise}, nil)
				})
			}
			address <- at
		})
	})
}

// loaderArgs are those of loader i.
func loaderArgs(opts *Options, planner, dir string, i int) []string {
	args := []string{"loader", "--planner", planner, "--id", fmt.Sprintf("loader-%d", i), "--listen", private(dir, "loader", i), "--workers", strconv.Itoa(opts.Workers)}
	if opts.Scratch != "" {
		args = append(args, "--scratch-dir", opts.Scratch)
	}
	return args
}

// stopTime is how long a process may take to stop when asked to.
const stopTime = 5 * time.Second

// spawn runs one role until ctx ends. serving is called with the address from
// the role's first line.
func spawn(ctx context.Context, opts *Options, args []string, serving func(string)) error {
	// The kernel ties the child's life to this thread, not to the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, opts.Executable, append(args, securityFlags(opts.Security)...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTime
	cmd.SysProcAttr = dieWithParent()
	tail := &tail{to: opts.Stderr}
	cmd.Stderr = tail
	lines := &firstLine{found: func(line string) {
		if i := strings.LastIndex(line, " on "); i >= 0 && serving != nil {
			serving(line[i+len(" on "):])
		}
	}}
	cmd.Stdout = lines
	err := cmd.Run()
	// A planner whose job had failed before it was stopped says so.
	if ctx.Err() != nil && (args[0] != "planner" || cmd.ProcessState.ExitCode() <= 0) {
		return nil
	}
	if wait := otherCause(cmd.ProcessState, args[0]); wait > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
	if err != nil {
		return fault.As(classOf(cmd.ProcessState), fmt.Errorf("%s ended: %w%s", nameOf(args), err, tail.last()))
	}
	return fault.Lostf("%s ended by itself", nameOf(args))
}

// otherCause is how long to wait for what may be why a role's process ended, and says
// more: the end of another role, or the signal that stops this process, too, as Ctrl-C
// is sent to all.
func otherCause(p *os.ProcessState, role string) time.Duration {
	if p == nil { // it did not start
		return 0
	}
	code, status := p.ExitCode(), p.Sys().(syscall.WaitStatus)
	switch {
	case role != "planner" && (code == 0 || code == 4):
		return stopTime
	case code == 0, status.Signaled() && (status.Signal() == syscall.SIGINT || status.Signal() == syscall.SIGTERM):
		return time.Second
	}
	return 0
}

// nameOf names a role's process in messages.
func nameOf(args []string) string {
	if i := slices.Index(args, "--id"); i >= 0 {
		return "the process of " + args[i+1]
	}
	return "the process of the " + args[0]
}

// classOf takes a role's word for whose fault its end was; see the exit codes of
// package cli.
func classOf(p *os.ProcessState) fault.Class {
	switch p.ExitCode() {
	case 1:
		return fault.Bug
	case 3:
		return fault.User
	}
	return fault.Lost
}

func securityFlags(s rpc.Security) []string {
	var flags []string
	for _, f := range []struct{ name, value string }{
		{"--tls-cert", s.CertFile}, {"--tls-key", s.KeyFile}, {"--tls-ca", s.CAFile}, {"--access-key-file", s.AccessKeyFile},
	} {
		if f.value != "" {
			flags = append(flags, f.name, f.value)
		}
	}
	if s.Insecure {
		flags = append(flags, "--insecure")
	}
	return flags
}
