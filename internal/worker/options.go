package worker

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

// Options say what an environment is.
type Options struct {
	// Python is the interpreter, which has millrace and NumPy. "" is "python3".
	Python string
	// Path are folders of modules, before those that the interpreter knows.
	Path []string
	// Functions are imported by the fork server at the start: "module:function".
	Functions []string
	// Workers is the number of processes; 0 is 1. Below 0 there are none: pools run what is called (Join).
	Workers int
	// Memory is the most that a worker and what it starts may hold, in bytes; 0 is DefaultMemory,
	// below 0 no limit.
	Memory int64
	// Timeout is for one batch, and Start for imports and for setting up a class; 0 is
	// DefaultTimeout and DefaultStart.
	Timeout, Start time.Duration
	// TimeoutDecides and MemoryDecides say that a row which goes beyond the limit, again and alone in a new
	// worker, is a bad record; else it is an error of the call, as another machine may have more.
	TimeoutDecides, MemoryDecides bool
	// BatchBytes is the size of the batches that go to a worker; 0 is DefaultBatchBytes. A row
	// is never cut.
	BatchBytes int
	// Network lets functions use the network. Without it they have none, where the kernel can.
	Network bool
	// GPUs are the devices of this process, for functions that need some; nil, and a nil answer: there are none.
	GPUs func() *GPUs
	// Log gets what functions print, and what becomes of processes; nil drops it.
	Log *slog.Logger
}

// Defaults of Options.
const (
	// DefaultMemory holds a large model's tokenizer and its libraries.
	DefaultMemory = 2 << 30
	// DefaultTimeout is far above any function that keeps up with training.
	DefaultTimeout = time.Minute
	// DefaultStart is for models that are read from a network disk.
	DefaultStart = 10 * time.Minute
	// DefaultBatchBytes: a call costs as much as copying this does.
	DefaultBatchBytes = 1 << 20
)

func (o Options) withDefaults() Options {
	if o.Python == "" {
		o.Python = "python3"
	}
	if o.Workers == 0 {
		o.Workers = 1
	}
	o.Workers = max(o.Workers, 0)
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Start <= 0 {
		o.Start = DefaultStart
	}
	if o.BatchBytes <= 0 {
		o.BatchBytes = DefaultBatchBytes
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) validate() error {
	if o.BatchBytes > MaxBatch {
		return fault.Userf("batches of %d bytes: give at most %d", o.BatchBytes, MaxBatch)
	}
	for _, name := range o.Functions {
		if err := checkName(name); err != nil {
			return err
		}
	}
	return nil
}

func checkName(name string) error {
	module, function, ok := strings.Cut(name, ":")
	if !ok || module == "" || function == "" {
		return fault.Userf(`function %q: give "module:function", as in "clean:strip"`, name)
	}
	return nil
}

// fixed are variables that decide what Python computes, or threads that a fork would lose.
// A variable that the loader has set already stays, but for the first two.
var fixed = []string{
	"PYTHONHASHSEED=0",   // else the order of a set differs from process to process
	"PYTHONUNBUFFERED=1", // else what a worker printed last dies with it
	"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1", "TOKENIZERS_PARALLELISM=false",
	// What a batch takes is kept for the next one, up to 32 MiB: asking the kernel for it each time
	// costs more than copying it. Other allocators than glibc's do not know these.
	"MALLOC_MMAP_THRESHOLD_=16777216", "MALLOC_TRIM_THRESHOLD_=33554432",
}

// noNetwork is set where the network was taken away: an error that comes of that names the way to have it.
const noNetwork = "MILLRACE_NO_NETWORK=1"

// environ are the variables of the fork server.
func (o Options) environ() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"PYTHONHASHSEED", "PYTHONUNBUFFERED", "PYTHONPATH", "MILLRACE_NO_NETWORK"}, name)
	})
	for _, v := range fixed {
		name, _, _ := strings.Cut(v, "=")
		if _, set := os.LookupEnv(name); !set || strings.HasPrefix(name, "PYTHON") {
			env = append(env, v)
		}
	}
	path := o.Path
	if inherited := os.Getenv("PYTHONPATH"); inherited != "" {
		path = append(slices.Clone(path), inherited)
	}
	if len(path) > 0 {
		env = append(env, "PYTHONPATH="+strings.Join(path, string(os.PathListSeparator)))
	}
	return env
}

// String names an environment in messages.
func (o Options) String() string {
	if len(o.Path) == 0 {
		return o.Python
	}
	return fmt.Sprintf("%s with %s", o.Python, strings.Join(o.Path, ", "))
}
