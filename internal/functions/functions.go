// Package functions opens the Python functions that the steps of a job name.
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
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/internal/worker"
	"github.com/millrace-data/millrace/jobspec"
)

// Set opens functions. It is safe for concurrent use; the zero value starts as many workers
// for an environment as there are processors for this one.
type Set struct {
	Workers int          // of each environment; 0: GOMAXPROCS
	Log     *slog.Logger // of what functions print; nil: discard

	mu     sync.Mutex
	slots  chan struct{} // of converters: one for each child that may run
	opened map[environment]*opening
	closed bool
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
	once sync.Once
	env  *worker.Environment
	err  error
}

// Open is a transform.Functions.
func (s *Set) Open(seed uint64, src *jobspec.Source, step int) (*transform.Function, error) {
	if spec, ok := src.Transforms[step].(*jobspec.Convert); ok {
		return s.converter(spec)
	}
	spec, ok := src.Transforms[step].(*jobspec.Python)
	if !ok {
		return nil, fmt.Errorf("step %d of source %q is no function", step, src.Name)
	}
	env, err := s.environment(spec)
	if err != nil {
		return nil, err
	}
	ctx := context.Background() // Options.Start bounds an import
	f, err := env.Function(ctx, worker.Use{Name: spec.Function, Seed: seed, Source: src.Name, Step: fmt.Sprintf("transforms[%d].python", step), Twice: spec.Check == "twice"})
	if err != nil {
		return nil, err
	}
	d := f.Description()
	kind := d.Kind
	if kind == "map_batches" {
		kind = transform.MapFunction // of as many rows as it is given
	}
	pool := transform.Pool{Name: fmt.Sprintf("python %+v", keyOf(spec)), Slots: env.Seats(), Heap: env}
	runtime := fmt.Sprintf("Python %s, NumPy %s", d.Python, d.NumPy)
	return &transform.Function{Name: spec.Function, Kind: kind, In: columns(d.In), Out: columns(d.Out), Digest: d.Digest, Runtime: runtime, Pool: pool, Caller: f}, nil
}

func keyOf(step *jobspec.Python) environment {
	return environment{step.Interpreter, step.Path, step.Timeout, step.Memory, step.BatchBytes, step.Network}
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
	s.mu.Unlock()
	o.once.Do(func() {
		o.env, o.err = worker.Open(context.Background(), worker.Options{
			Python: step.Interpreter, Path: []string{step.Path}, Functions: []string{step.Function},
			Workers: cmp.Or(s.Workers, runtime.GOMAXPROCS(0)), Memory: step.Memory, Timeout: time.Duration(step.Timeout) * time.Second,
			TimeoutDecides: step.Timeout > 0, MemoryDecides: step.Memory > 0, BatchBytes: int(step.BatchBytes), Network: step.Network, Log: s.Log,
		})
	})
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
	opened := s.opened
	s.opened = nil
	s.mu.Unlock()
	for _, o := range opened {
		o.once.Do(func() {}) // one that is being opened is waited for
		if o.env != nil {
			_ = o.env.Close()
		}
	}
}
