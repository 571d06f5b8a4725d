package service

import (
	"cmp"
	"context"
	"fmt"
	"net"
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

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/rpc"
)

// asProcesses runs each role with the millrace binary.
func asProcesses(ctx context.Context, g *errgroup.Group, opts *Options, dir string, address chan string) {
	args := []string{"planner", opts.SpecFile, "--listen", opts.Address,
		"--constructors", strconv.Itoa(opts.Constructors)}
	if opts.Shadows > 0 {
		args = append(args, "--shadows", strconv.Itoa(opts.Shadows), "--shadow-mode", ShadowMode(opts.HotShadows))
	}
	if opts.Scale.Most > opts.Loaders {
		args = append(args, "--most-loaders", strconv.Itoa(opts.Scale.Most))
	}
	if opts.LogDir != "" {
		args = append(args, "--log-dir", opts.LogDir)
	}
	if opts.LogMirror != "" {
		args = append(args, "--log-mirror", opts.LogMirror)
	}
	if opts.LogRetain != 0 {
		args = append(args, "--log-retain", strconv.Itoa(opts.LogRetain))
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
	args = append(args, foldersChecked)
	if opts.Prefetch != 0 {
		args = append(args, "--prefetch", strconv.Itoa(opts.Prefetch))
	}
	if opts.Layout != nil {
		path := filepath.Join(dir, "loaders.yaml")
		if err := os.WriteFile(path, opts.Layout.YAML(opts.Job.Name), 0o600); err != nil {
			g.Go(func() error { return fmt.Errorf("writing which loader reads what: %w", err) })
			return
		}
		args = append(args, "--sizing", path)
	} else {
		args = append(args, "--loaders", strconv.Itoa(opts.Loaders))
	}
	planner := newProcess(opts, "the planner", append(args, opts.TelemetryFlags.Of(0)...))
	planner.lasting = opts.LogDir != ""
	if opts.LogMirror != "" {
		planner.served = []string{"--mirror-proved"}
	}
	g.Go(func() error {
		return planner.supervise(ctx, func(at string) {
			planner.listenAt(at)
			loaders := opts.fleet(func(ctx context.Context, i int) error {
				return newProcess(opts, loaderName(i), append(loaderArgs(opts, at, dir, i), opts.TelemetryFlags.Of(opts.page(i))...)).supervise(ctx, nil)
			})
			g.Go(func() error { return loaders.Run(ctx) })
			if opts.Scale.Most > opts.Loaders {
				g.Go(func() error { return opts.follow(ctx, at, loaders) })
			}
			for i := range opts.Constructors {
				id := fmt.Sprintf("constructor-%d", i)
				args := []string{"constructor", "--planner", at, "--id", id, "--listen", dataAddress(opts.Address), "--advertise", opts.Advertise}
				constructor := newProcess(opts, id, slices.Concat(args, opts.Memory.flags(opts.Job.Resources.ConstructorBuffer), opts.TelemetryFlags.Of(1+opts.Loaders+opts.Shadows+i)))
				g.Go(func() error { return constructor.supervise(ctx, nil) })
			}
			address <- at
		})
	})
}

// foldersChecked has a role start without a folder that was there when the service began: only who starts that is to hear of it.
const foldersChecked = "--folders-checked"

// ShadowMode names what shadows do, as the flag --shadow-mode has it.
func ShadowMode(hot bool) string {
	if hot {
		return "hot"
	}
	return "warm"
}

// loaderArgs are those of loader i.
func loaderArgs(opts *Options, planner, dir string, i int) []string {
	part := opts.part(i)
	args := []string{"loader", "--planner", planner, "--id", loaderName(i), "--listen", private(dir, "loader", i), "--workers", strconv.Itoa(part.workers)}
	if part.place > 0 {
		args = append(args, "--place", strconv.Itoa(part.place-1), "--buffer", strconv.FormatInt(part.buffer, 10))
	}
	if opts.Scratch != "" {
		args = append(args, "--scratch-dir", opts.Scratch, foldersChecked)
	}
	return append(args, opts.Memory.flags(cmp.Or(part.buffer, opts.Job.Resources.LoaderBuffer))...)
}

// stopTime is how long a process may take to stop when asked to: longer than a role takes to
// leave in order.
const stopTime = 12 * time.Second

// process is the process of a role.
type process struct {
	opts    *Options
	name    string
	args    []string
	served  []string // arguments of those that come after one which served
	lasting bool     // another one can go on where it was
	deaths  deaths
	died    int // times in all, since one whose deaths are rare is started again without end
}

func newProcess(opts *Options, name string, args []string) *process {
	return &process{opts: opts, name: name, args: args, lasting: true}
}

// listenAt has the next one listen where this one does: others know the address.
func (p *process) listenAt(at string) {
	i := slices.Index(p.args, "--listen") + 1
	_, port, err := net.SplitHostPort(at)
	if host, ok := hostOf(p.args[i]); ok && err == nil {
		p.args[i] = host + ":" + port
	}
}

// run runs one process until it ends or ctx does. serving is called with the address from its
// first line.
func (p *process) run(ctx context.Context, serving func(string)) ending {
	// The kernel ties the child's life to this thread, not to the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p.clean()
	cmd := exec.CommandContext(ctx, p.opts.Executable, append(slices.Clone(p.args), securityFlags(p.opts.Security)...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTime
	cmd.SysProcAttr = dieWithParent()
	tail := &tail{to: p.opts.Stderr}
	cmd.Stderr = tail
	lines := &firstLine{found: func(line string) {
		if i := strings.LastIndex(line, " on "); i >= 0 && serving != nil {
			serving(line[i+len(" on "):])
		}
	}}
	cmd.Stdout = lines
	err := cmd.Run()
	return ending{err: err, state: cmd.ProcessState, tail: tail, served: lines.done}
}

// clean removes the socket that a process left that was killed.
func (p *process) clean() {
	if path, ok := strings.CutPrefix(p.args[slices.Index(p.args, "--listen")+1], "unix:"); ok {
		_ = os.Remove(path) // if it cannot be, listening on it says why
	}
}

// ending is how a process ended.
type ending struct {
	err    error
	state  *os.ProcessState // nil if it did not start
	tail   *tail            // of its stderr
	served bool             // it had begun to serve, and said where
}

// said says whether the role itself ended, and said why: the spec or the data is at fault, or
// there is a bug. Another one would say the same.
func (e *ending) said() bool {
	return e.state == nil || e.state.ExitCode() == 1 || e.state.ExitCode() == 3
}

// why is the error of the ending of a process.
func (p *process) why(e *ending) error {
	if e.err == nil {
		return fault.Lostf("the process of %s ended by itself", p.name)
	}
	return fault.As(e.class(), fmt.Errorf("the process of %s ended: %w%s", p.name, e.err, e.tail.last()))
}

// class takes a role's word for whose fault its end was; see the exit codes of
// package cli.
func (e *ending) class() fault.Class {
	switch e.state.ExitCode() {
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
