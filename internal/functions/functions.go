// Package functions opens what the steps of a job put records through outside of this process: Python
// functions and model servers (internal/inference).
//
// It owns the environments of a process: one for each interpreter, folder of modules and set
// of limits, started when the first step needs it and shared by all that follow. It never
// runs a function (internal/worker) and never looks at a record (sourceloader/transform).
package functions

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/formats"
	"github.com/millrace-data/millrace/internal/inference"
	"github.com/millrace-data/millrace/internal/pool"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/internal/worker"
	"github.com/millrace-data/millrace/jobspec"
)

// Set opens functions. It is safe for concurrent use; the zero value starts as many workers
// for an environment as there are processors for this one.
type Set struct {
	Workers int          // of each environment; 0: what Default said, else GOMAXPROCS
	Pools   []string     // addresses of worker pools that help; nil: what Default said
	GPUs    *worker.GPUs // that functions may need; nil: those that the driver names, if CUDA_VISIBLE_DEVICES does not leave them out
	Log     *slog.Logger // of what functions print; nil: discard
	Command bool         // somebody waits at a terminal: a model server that never answers is an error within seconds
	Run     bool         // or waits for a job there: it ends the job within minutes

	looking sync.Once // for GPUs

	mu       sync.Mutex
	opened   map[environment]*opening
	calls    map[string]*transform.Function // by the fields of the step
	closed   bool
	fallback int
	others   []string // pools, where Pools names none
	security rpc.Security
	pools    *pool.Client  // nil until a function is opened, and if there are none
	slots    chan struct{} // of programs: one for each child that may run
}

// Default says how many workers environments have that are opened from now on, where Workers does not; 0: GOMAXPROCS;
// and which worker pools help, where Pools does not.
func (s *Set) Default(workers int, pools []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fallback, s.others = workers, pools
}

// Secure says how worker pools that are called from now on are trusted, and by which key they let us in.
func (s *Set) Secure(security rpc.Security) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.security = security
}

// client is the way to the worker pools, nil if there are none.
func (s *Set) client() (c *pool.Client, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	addresses := s.Pools
	if addresses == nil {
		addresses = s.others
	}
	if s.pools == nil && len(addresses) > 0 && !s.closed {
		s.pools, err = pool.NewClient(addresses, s.security, cmp.Or(s.Log, slog.New(slog.DiscardHandler)))
	}
	return s.pools, err
}

// environment is what decides which processes a step can share.
type environment struct {
	interpreter, path string
	timeout           int
	memory, batch     int64
	network           bool
}

// opening is an environment that the first step which needs it opens, while others wait.
type opening struct {
	once  sync.Once
	env   *worker.Environment
	err   error
	ready atomic.Bool // env is there
}

// Open is a transform.Functions.
func (s *Set) Open(seed uint64, src *jobspec.Source, step int) (*transform.Function, error) {
	switch spec := src.Transforms[step].(type) {
	case *jobspec.Python:
		return s.python(seed, src, step, spec)
	case *jobspec.Convert:
		return s.converter(spec)
	case *jobspec.Frames:
		return s.framer(seed, src, step, spec)
	case *jobspec.Probe:
		return s.prober(spec)
	case *jobspec.Call:
		return s.call(src, spec)
	}
	return nil, fmt.Errorf("step %d of source %q is not a function", step, src.Name)
}

// errBadRow stands for what a function says of a row.
var errBadRow = fault.Userf("a bad row")

// python opens the function of a python step.
func (s *Set) python(seed uint64, src *jobspec.Source, step int, spec *jobspec.Python) (*transform.Function, error) {
	env, err := s.environment(spec)
	if err != nil {
		return nil, err
	}
	ctx := context.Background() // Options.Start bounds an import
	f, err := env.Function(ctx, worker.Use{
		Name: spec.Function, Seed: seed, Source: src.Name, Step: fmt.Sprintf("transforms[%d].python", step),
		Twice: spec.Check == "twice", Stop: !transform.Skips(src, errBadRow),
	})
	if err != nil {
		return nil, err
	}
	d := f.Description()
	pools, err := s.client()
	if err != nil {
		return nil, err
	}
	if pools != nil {
		pools.Use(env, d)
	}
	if f.Slots() == 0 && !served(f, pools) {
		return nil, fault.Userf("function %s needs a GPU, and this machine has none for it, nor has a worker pool that was there within %v%s", spec.Function, poolTime, refusals(pools, env))
	}
	kind := d.Kind
	if kind == "map_batches" {
		kind = transform.MapFunction // of as many rows as it is given
	}
	pool := transform.Pool{Name: fmt.Sprintf("python %+v gpu %v %v", keyOf(spec), d.Needs["gpu"], d.Needs["gpu_memory"]), Slots: f.OwnSeats(), Takes: d.Needs["cpu"], Heap: env, Seats: f.Seats}
	return &transform.Function{Name: spec.Function, Kind: kind, In: columns(d.In), Out: columns(d.Out), Digest: d.Digest, Runtime: d.Runtime(), Pool: pool, Caller: f}, nil
}

func keyOf(step *jobspec.Python) environment {
	return environment{step.Interpreter, step.Path, step.Timeout, step.Memory, step.BatchBytes, step.Network}
}

// call opens the function of a call step, which equal steps share: its rate is for all of them.
func (s *Set) call(src *jobspec.Source, step *jobspec.Call) (*transform.Function, error) {
	pages := pagesOf(src)
	key := fmt.Sprintf("%#v %#v", pages, *step)
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.calls[key]; f != nil {
		own := *f
		return &own, nil
	}
	f, err := inference.Open(step, pages, s.Log)
	if err != nil {
		return nil, err
	}
	switch c := f.Caller.(*inference.Caller); {
	case s.Command:
		c.ForCommand()
	case s.Run:
		c.ForRun()
	}
	if s.calls == nil {
		s.calls = map[string]*transform.Function{}
	}
	s.calls[key] = f
	own := *f
	return &own, nil
}

// pagesOf says which records of a source lie together: rows of some formats are numbers of records, of
// others bytes.
func pagesOf(src *jobspec.Source) inference.Pages {
	format := src.Format
	if format == "" && len(src.Files) > 0 {
		in, _ := formats.InputOf(src.Files[0])
		format = in.Name
	}
	switch format {
	case formats.Text, formats.Files: // a record is a file
		return inference.Pages{Files: 256, Rows: 1}
	case formats.JSONL:
		return inference.Pages{Files: 1, Rows: 256 << 10}
	case formats.JSON, "": // of the one kind or the other
		return inference.Pages{Files: 1, Rows: 4 << 10}
	}
	return inference.Pages{Files: 1, Rows: 256}
}

// environment returns the environment of a step, which is started the first time.
func (s *Set) environment(step *jobspec.Python) (*worker.Environment, error) {
	key := keyOf(step)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, fault.Lostf("the functions of this process are closed")
	}
	o := s.opened[key]
	if o == nil {
		o = &opening{}
		if s.opened == nil {
			s.opened = map[environment]*opening{}
		}
		s.opened[key] = o
	}
	workers := cmp.Or(s.Workers, s.fallback, runtime.GOMAXPROCS(0))
	s.mu.Unlock()
	o.once.Do(func() {
		o.env, o.err = worker.Open(context.Background(), worker.Options{
			Python: step.Interpreter, Path: []string{step.Path}, Functions: []string{step.Function},
			Workers: workers, Memory: step.Memory, Timeout: time.Duration(step.Timeout) * time.Second,
			TimeoutDecides: step.Timeout > 0, MemoryDecides: step.Memory > 0, BatchBytes: int(step.BatchBytes), Network: step.Network, GPUs: s.devices, Log: s.Log,
		})
	})
	o.ready.Store(o.err == nil)
	if o.err != nil { // the next step tries again
		s.mu.Lock()
		if s.opened[key] == o {
			delete(s.opened, key)
		}
		s.mu.Unlock()
	}
	return o.env, o.err
}

// columns are what transforms know of a function's columns: kinds that a type says more of
// are the worker's to check.
func columns(from []worker.Column) (all []transform.Column) {
	for _, c := range from {
		column := transform.Column{Name: c.Name, Kind: c.Type.Kind, Null: c.Type.Nullable}
		if of := c.Type.Of; of != nil && of.Of == nil && !of.Nullable {
			column.Element = of.Kind
		}
		if column.Kind == format.Null {
			column.Null = true
		}
		all = append(all, column)
	}
	return all
}

// Close ends all processes, and returns when they are gone. Nothing is opened after it.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	opened, calls, pools := s.opened, s.calls, s.pools
	s.opened, s.calls, s.pools = nil, nil, nil
	s.mu.Unlock()
	if pools != nil {
		pools.Close()
	}
	for _, f := range calls {
		f.Caller.(*inference.Caller).Close()
	}
	for _, o := range opened {
		o.once.Do(func() {}) // one that is being opened is waited for
		if o.env != nil {
			_ = o.env.Close()
		}
	}
}
