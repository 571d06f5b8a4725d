package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

// Environment is an interpreter with its modules, and the workers that serve all its
// functions. It is safe for concurrent use.
type Environment struct {
	opt    Options
	cancel context.CancelFunc
	ended  chan struct{} // closed when nothing of it is left
	called chan struct{} // holds one for each call that had to wait, at most one for each worker: it ends the rest of one

	mu        sync.Mutex
	server    *server // nil while there is none
	names     []string
	described map[string]Description
	free      []*seat
	waiting   []*waiter
	far       []*far
	lanes     map[Need]*lane    // of those who need GPUs
	failure   error             // why nobody can be served
	forks     map[Need]*forking // of workers that cannot be forked, see unforked
	problem   string            // why no fork server was started at the last attempt
	restarts  int
	lastDeath string       // of a worker
	runtime   string       // versions of what runs functions
	taken     int          // seats of workers here that are in use
	away      int          // bytes of batches on the way to pools
	pressing  map[any]bool // those for whom workers have to take less memory

	held  atomic.Int64 // see Held
	shift atomic.Int32 // how often batches are halved for lack of memory
}

const (
	maxStarts  = 8 // of a fork server in a row, some 5 s with the pauses between them, before calls hear why it does not start
	firstPause = 20 * time.Millisecond
	maxPause   = 5 * time.Second
	// watchEvery is how often memory is looked at: what a process can take in that time is
	// over the limit by some hundred MB at the worst.
	watchEvery = 10 * time.Millisecond
)

// ErrChanged is part of the error of a function whose module's file is not the one that was imported for others.
var ErrChanged = errors.New("others of that file run as they were: put it back, or this function into a module of its own")

var errClosed = errors.New("the environment is closed")

// Open starts the fork server of an environment and its workers. Functions that do not
// load are an error of class fault.User. Whoever opens an environment closes it.
func Open(ctx context.Context, opt Options) (*Environment, error) {
	opt = opt.withDefaults()
	if err := opt.validate(); err != nil {
		return nil, err
	}
	if opt.MemoryDecides && peakOf(os.Getpid()) == 0 {
		return nil, fault.Userf("%v: its `memory` decides which records are left out, and this system does not say what a process held at the most: run it on Linux, or leave `memory` out of the step", opt)
	}
	e := &Environment{opt: opt, ended: make(chan struct{}), called: make(chan struct{}, max(opt.Workers, 1)), described: map[string]Description{}, pressing: map[any]bool{}, lanes: map[Need]*lane{}, forks: map[Need]*forking{}, names: slices.Clone(opt.Functions)}
	s, err := e.start(ctx)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", opt, err)
	}
	if !canLimit && opt.Memory > 0 {
		opt.Log.Warn("the memory of workers cannot be limited on this system")
	}
	if !s.alone && !opt.Network {
		opt.Log.Warn("functions have the network: the kernel does not let this user take it from them")
	}
	ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go e.run(ctx, s)
	return e, nil
}

// Close ends all processes, and returns when they are gone. Calls end with an error.
func (e *Environment) Close() error {
	e.cancel()
	<-e.ended
	return nil
}

// Status says what an environment runs.
type Status struct {
	Workers   int
	Busy      int    // workers that have a batch
	Waiting   int    // batches that wait for one
	Restarts  int    // of workers and of the fork server
	LastDeath string // why a worker ended last; "": none did
	Problem   string // why workers, or the fork server, do not start; "": they do
	NoNetwork bool   // functions have none
	Runtime   string // versions of Python and NumPy, which no digest covers
	Far       []FarStatus
}

// Status returns the present status.
func (e *Environment) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Status{Workers: e.opt.Workers, Waiting: len(e.waiting), Restarts: e.restarts, LastDeath: e.lastDeath, Problem: cmp.Or(e.problem, e.unforkedProblem()), Runtime: e.runtime}
	if e.server != nil {
		s.NoNetwork = e.server.alone
		for _, p := range e.server.processes() {
			if p.busy() > 0 {
				s.Busy++
			}
		}
	}
	for _, f := range e.far {
		s.Far = append(s.Far, FarStatus{f.pool.Name(), f.workers, f.taken})
	}
	return s
}

// death keeps why a worker ended.
func (e *Environment) death(p *process) {
	p.mu.Lock()
	why := p.died
	p.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lastDeath = why
}

// Describe returns what a function declares, and imports its module first if need be. A
// function that does not load is an error of class fault.User.
func (e *Environment) Describe(ctx context.Context, name string) (Description, error) {
	if err := checkName(name); err != nil {
		return Description{}, err
	}
	e.mu.Lock()
	d, known := e.described[name]
	s := e.server
	e.mu.Unlock()
	if known {
		return d, nil
	}
	if s == nil {
		return Description{}, fault.Lostf("function %s: %w", name, ErrRestarting)
	}
	if err := e.open(ctx, s, []string{name}); err != nil {
		return Description{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.names = append(e.names, name)
	return e.described[name], nil
}

// start starts a fork server that has imported all functions.
func (e *Environment) start(ctx context.Context) (*server, error) {
	s, err := startServer(e.opt)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	names, first := slices.Clone(e.names), e.runtime == ""
	e.mu.Unlock()
	err = e.open(ctx, s, []string{}) // it answers: what ends it after this is an import, and not the machine's fault
	if err == nil && len(names) > 0 {
		err = e.open(ctx, s, names)
	}
	if err != nil {
		s.stop()
		if first {
			err = s.unfit(ctx, err)
		}
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.server, e.failure, e.problem = s, nil, ""
	for _, f := range e.forks {
		f.problem = ""
	}
	return s, nil
}

// open has a server import functions, and keeps what it says of them.
func (e *Environment) open(ctx context.Context, s *server, names []string) error {
	said, err := s.request(ctx, e.opt.Start, ask{Op: "open", Functions: names})
	if err != nil {
		return e.fatal(s, names, err)
	}
	if said.Protocol != Protocol {
		return fault.Userf("its millrace package speaks version %d of the workers' protocol, this loader %d: install the package of the same release", said.Protocol, Protocol)
	}
	if len(said.Threads) > 0 {
		e.opt.Log.Warn("an import started threads, which workers do not have: start them in a class's __init__", "functions", names, "threads", said.Threads)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runtime = runtimeOf(said.Python, said.NumPy)
	for _, f := range said.Functions {
		if f.Changed {
			return fault.Userf("function %s: %s: %w", f.Name, f.Error, ErrChanged)
		}
		if f.Error != "" {
			return fault.Userf("function %s: %s", f.Name, f.Error)
		}
		before, known := e.described[f.Name]
		f.Python, f.NumPy = said.Python, said.NumPy
		if known && before.Digest != f.Digest {
			return fault.Userf("function %s: its code changed while it runs: start the service again, as another job", f.Name)
		}
		e.described[f.Name] = f.Description
	}
	return nil
}

// fatal is the error of a request to import functions: of class fault.User if a server that had answered before ended by
// itself meanwhile, of what had not been imported before.
func (e *Environment) fatal(s *server, names []string, err error) error {
	if !s.answered.Load() || !closed(s.gone) || !errors.Is(err, s.ended) || errors.Is(err, ErrRestarting) || s.outside {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, known := e.described[name]
		return known
	})
	if len(names) == 0 {
		return err
	}
	module, _, _ := strings.Cut(names[0], ":")
	return fault.As(fault.User, fmt.Errorf("importing %s: %w: an import may not end its process; `%s -c \"import %s\"` in its folder shows what does", strings.Join(names, ", "), err, e.opt.Python, module))
}

// run serves until it is cancelled, with one fork server after the other. It ends each that was started.
func (e *Environment) run(ctx context.Context, s *server) {
	defer close(e.ended)
	defer func() {
		for _, c := range e.claims() {
			c.close()
		}
	}()
	for s != nil {
		e.serve(ctx, s)
		s = e.startAgain(ctx)
	}
	e.fail(errClosed)
}

// startAgain starts another fork server, however often it takes; nil: it is cancelled.
func (e *Environment) startAgain(ctx context.Context) *server {
	for failures := 1; ctx.Err() == nil; failures++ {
		s, err := e.start(ctx)
		if err == nil {
			e.restart("fork server")
			return s
		}
		e.opt.Log.Warn("the fork server does not start", "error", err)
		e.mu.Lock()
		e.problem = err.Error()
		e.mu.Unlock()
		if failures >= maxStarts {
			e.fail(err)
		}
		sleep(ctx, pause(failures))
	}
	return nil
}

// serve runs workers until the server is gone, or it is cancelled; then it ends the server.
func (e *Environment) serve(ctx context.Context, s *server) {
	var workers sync.WaitGroup
	for range e.opt.Workers {
		workers.Go(func() { e.work(ctx, s, nil) })
	}
	workers.Go(func() { e.tend(ctx, s) })
	if canLimit {
		workers.Go(func() { e.watch(s) })
	}
	select {
	case <-ctx.Done():
	case <-s.gone:
		e.opt.Log.Warn("python", "error", s.ended)
	}
	e.mu.Lock()
	e.server = nil
	e.mu.Unlock()
	s.stop()
	workers.Wait()
}

// work keeps one worker alive, with a share of a GPU if it owns one.
func (e *Environment) work(ctx context.Context, s *server, own *share) {
	for idle := 0; ; idle++ {
		p, err := s.fork(ctx, own)
		if err != nil {
			e.unforked(ctx, s, own.need(), e.lane(own.need()), err)
			if ctx.Err() != nil || closed(s.gone) {
				return
			}
			e.opt.Log.Warn("forking a worker", "gpu", own != nil, "error", err)
			if own.wait(ctx, pause(idle)) {
				return
			}
			continue
		}
		e.add(p)
		revoked := own.run(p)
		e.remove(p)
		if ctx.Err() != nil || closed(s.gone) || revoked {
			return
		}
		e.death(p)
		e.restart("worker")
		if p.tried() { // whoever gave it something to do decides whether to go on
			idle = 0
			continue
		}
		e.rest(ctx, pause(idle))
	}
}

// rest waits before a worker is started in the place of one that ended without work: until a call waits for one, which
// decides then whether to go on.
func (e *Environment) rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-e.called:
	}
}

// watch ends workers that hold more than they may.
func (e *Environment) watch(s *server) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	measured := time.Now()
	for {
		select {
		case <-s.gone:
			return
		case <-tick.C:
		}
		if now := time.Now(); now.Sub(measured) >= measureEvery {
			measured = now
			e.measure(s)
		}
		if e.opt.Memory <= 0 {
			continue
		}
		for _, p := range s.processes() {
			if p.busy() > 0 && memoryOf(p.pid) > e.opt.Memory {
				p.outgrown(e.opt.Memory)
			}
		}
	}
}

func (e *Environment) restart(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.restarts++
	e.opt.Log.Debug("started again", "what", what)
}

// pause is the wait before the next attempt.
func pause(failures int) time.Duration {
	return min(firstPause<<min(failures, 10), maxPause)
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
