package rig

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/faultproxy"
)

// Options configure the roles of a job. Binary, Dir and Answer are required.
type Options struct {
	Binary       string  // millrace
	Dir          string  // of this run: logs of the roles, the step log, sockets; short, as sockets' paths are
	Answer       *Answer //
	Loaders      int     // default 1
	Shadows      int     // loaders beside them that stand by, with the numbers after theirs
	HotShadows   bool    // they read along
	Constructors int     // default 1
	Prefetch     int     // steps planned ahead; 0: the spec's
	LogDir       string  // of the planner; default: below Dir
	Standbys     int     // planners that stand by for the first, with the ids planner-1 and so on
	Mirror       bool    // the log has a second copy below Dir, and each planner a disk of its own
	Env          []string
	// Roles changes how roles are started; may be nil. It is called once for each, before
	// anything starts.
	Roles func(*Spec)
	// Cuttable are loaders and constructors with a proxy on either side of them: what they
	// say, and what is said to them, goes through it.
	Cuttable []string
	Delay    time.Duration // between a role's end and its next life; default 20 ms
	// Died hears of each end that does not end the run; may be nil. It is called by several
	// goroutines.
	Died func(Death)
}

// Rig is a running service. It is safe for concurrent use.
type Rig struct {
	opts      Options
	addresses []string // of the planners

	group *errgroup.Group
	ctx   context.Context
	ways  map[string]*way // of what is cuttable

	mu        sync.Mutex // guards the fields below
	processes []*process
	leader    string // id of the planner that began to serve last
}

// way are the proxies of a role.
type way struct {
	listen    string            // its address
	toPlanner *faultproxy.Proxy // its calls
	toRole    *faultproxy.Proxy // what it is asked
}

// Run starts the roles, calls use, and ends them all. It returns the first error: of use, or
// of a role that ended with an exit code of its own, for anything else than a loss.
func Run(ctx context.Context, opts Options, use func(ctx context.Context, r *Rig) error) error {
	opts.Loaders, opts.Constructors = max(opts.Loaders, 1), max(opts.Constructors, 1)
	if opts.LogDir == "" {
		opts.LogDir = filepath.Join(opts.Dir, "log")
	}
	r := &Rig{opts: opts, leader: rolePlanner}
	for range 1 + opts.Standbys {
		address, err := faultproxy.FreeAddress()
		if err != nil {
			return err
		}
		r.addresses = append(r.addresses, address)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r.group, r.ctx = errgroup.WithContext(ctx)
	if err := r.proxies(); err != nil {
		return err
	}
	for i := range r.addresses {
		r.start(plannerID(i))
	}
	for i := range opts.Loaders + opts.Shadows {
		r.start(fmt.Sprintf("loader-%d", i))
	}
	for i := range opts.Constructors {
		r.start(fmt.Sprintf("constructor-%d", i))
	}
	r.group.Go(func() error {
		defer stop()
		return use(r.ctx, r)
	})
	return r.group.Wait()
}

// Address is where the planner listens, and those that stand by will.
func (r *Rig) Address() string { return strings.Join(r.addresses, ",") }

// Leader is the id of the planner that began to serve last.
func (r *Rig) Leader() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leader
}

const rolePlanner = "planner"

// plannerID is the id of the first planner, or of one that stands by.
func plannerID(n int) string {
	if n == 0 {
		return rolePlanner
	}
	return fmt.Sprintf("%s-%d", rolePlanner, n)
}

// proxies starts those of what is cuttable.
func (r *Rig) proxies() error {
	r.ways = map[string]*way{}
	for _, id := range r.opts.Cuttable {
		w := &way{}
		var err error
		if w.listen, err = faultproxy.FreeAddress(); err != nil {
			return err
		}
		for to, p := range map[string]**faultproxy.Proxy{r.addresses[0]: &w.toPlanner, w.listen: &w.toRole} {
			if *p, err = faultproxy.Start(); err != nil {
				return err
			}
			(*p).Forward(to)
			context.AfterFunc(r.ctx, (*p).Close)
		}
		r.ways[id] = w
	}
	return nil
}

// Break has what passes between a cuttable role and all others treated as a proxy does in a mode:
// not at all, slowly, or as it comes. It reports whether the role is one.
func (r *Rig) Break(id string, mode faultproxy.Mode) bool {
	w := r.ways[id]
	if w != nil {
		w.toPlanner.Set(mode)
		w.toRole.Set(mode)
	}
	return w != nil
}

// start adds a role and begins its first life.
func (r *Rig) start(id string) {
	spec := Spec{ID: id, Args: r.argsOf(id), Delay: func(int) time.Duration { return cmp.Or(r.opts.Delay, 20*time.Millisecond) }}
	if r.opts.Roles != nil {
		r.opts.Roles(&spec)
	}
	p := &process{rig: r, spec: spec}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes = append(r.processes, p)
	r.group.Go(func() error { return p.keep(r.ctx) })
}

// argsOf is the command line of a role.
func (r *Rig) argsOf(id string) func(life int) []string {
	role, number, _ := cutRole(id)
	if role == rolePlanner {
		return func(life int) []string { return r.plannerArgs(number, life) }
	}
	return func(life int) []string {
		args := []string{role, "--id", id}
		if w := r.ways[id]; w != nil {
			args = append(args, "--planner", w.toPlanner.Address(), "--listen", w.listen, "--advertise", w.toRole.Address())
			if role == "constructor" {
				args = append(args, "--shared-dir", "none") // ranks would go past the proxy
			}
		} else {
			at := filepath.Join(r.opts.Dir, fmt.Sprintf("%s.%d", id, life))
			args = append(args, "--planner", r.Address(), "--listen", "unix:"+at)
		}
		if role == "loader" {
			args = append(args, "--workers", "2", "--scratch-dir", r.opts.Dir)
		}
		return args
	}
}

// LogDir is the folder of a planner's log.
func (r *Rig) LogDir(id string) string {
	if _, number, _ := cutRole(id); r.opts.Mirror && number > 0 {
		return fmt.Sprintf("%s-%d", r.opts.LogDir, number)
	}
	return r.opts.LogDir
}

// Mirror is the URL of the log's second copy.
func (r *Rig) Mirror() string { return "file://" + filepath.Join(r.opts.Dir, "mirror") }

// plannerArgs is the command line of a planner. The first of several stands by from its second life
// on: another one has taken its place by then.
func (r *Rig) plannerArgs(number, life int) []string {
	o := &r.opts
	args := []string{rolePlanner, o.Answer.Spec, "--listen", r.addresses[number], "--loaders", strconv.Itoa(o.Loaders),
		"--constructors", strconv.Itoa(o.Constructors), "--log-dir", r.LogDir(plannerID(number))}
	if o.Mirror {
		args = append(args, "--log-mirror", r.Mirror())
	}
	if number > 0 || o.Standbys > 0 && life > 1 {
		args = append(args, "--standby")
	}
	if o.Shadows > 0 {
		args = append(args, "--shadows", strconv.Itoa(o.Shadows))
	}
	if o.HotShadows {
		args = append(args, "--shadow-mode", "hot")
	}
	if o.Prefetch > 0 {
		args = append(args, "--prefetch", strconv.Itoa(o.Prefetch))
	}
	if o.Answer.Changes != "" {
		args = append(args, "--changes", o.Answer.Changes)
	}
	return args
}

// cutRole splits loader-3 into loader and 3.
func cutRole(id string) (role string, number int, ok bool) {
	for i := range len(id) {
		if id[i] == '-' {
			n, err := strconv.Atoi(id[i+1:])
			return id[:i], n, err == nil
		}
	}
	return id, 0, true
}

// serves hears that a planner serves.
func (r *Rig) serves(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leader = id
}

// find returns the process of a role; nil if there is none.
func (r *Rig) find(id string) *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.processes, func(p *process) bool { return p.spec.ID == id }); i >= 0 {
		return r.processes[i]
	}
	return nil
}

// Signal sends a role's process a signal; it reports whether one was there.
func (r *Rig) Signal(id string, s syscall.Signal) bool {
	p := r.find(id)
	return p != nil && p.signal(s)
}

// SignalAll sends all roles a signal.
func (r *Rig) SignalAll(s syscall.Signal) {
	r.mu.Lock()
	all := slices.Clone(r.processes)
	r.mu.Unlock()
	for _, p := range all {
		p.signal(s)
	}
}

// dumpTime is how long processes may take to print their stacks.
const dumpTime = 500 * time.Millisecond

// Dump has all roles print their stacks to their logs, and ends them with that.
func (r *Rig) Dump() {
	r.SignalAll(syscall.SIGCONT)
	r.SignalAll(syscall.SIGQUIT)
	time.Sleep(dumpTime)
}

// exitLost is the code of a role that lost another one, or a disk.
const exitLost = 4

// died hears of an end. One by a signal that was meant, or because something was lost, is
// nothing wrong.
func (r *Rig) died(d Death) error {
	if d.Signal != syscall.SIGKILL && (d.Signal != 0 || d.Code != 0 && d.Code != exitLost) {
		return fmt.Errorf("%s ended in its life %d with exit code %d, signal %d: %s", d.ID, d.Life, d.Code, d.Signal, d.Message)
	}
	if r.opts.Died != nil {
		r.opts.Died(d)
	}
	return nil
}
