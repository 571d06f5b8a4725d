package service

import (
	"log/slog"
	"os"
	"strconv"
	"sync"

	"github.com/millrace-data/millrace/internal/cgroup"
	"github.com/millrace-data/millrace/internal/memory"
	"github.com/millrace-data/millrace/jobspec"
)

// overhead is what a process takes beside the budgets of its roles: code, the planner's metadata,
// what is being read of blocks, and gRPC's buffers.
const overhead = 96 << 20

// program is the part of overhead that Go's collector does not see: pages of the program
// itself, 44 MiB once its code runs, memory that is shared with the workers of functions (7 MiB
// in a job of one), and what the collector is late by.
const program = 56 << 20

// leastBudget is the least that a role gets whatever the limit: with less than a few blocks it would read most of
// them again.
const leastBudget = 16 << 20

// LeastMemory is what a process takes beside its buffers, in bytes.
const LeastMemory = overhead

// Budget is the memory that a service of one process may take, in bytes.
func Budget(job *jobspec.Job, loaders, constructors int) int64 {
	return int64(loaders)*job.Resources.LoaderBuffer + int64(constructors)*job.Resources.ConstructorBuffer
}

// Budget is that of a service with these options, with as many loaders as it may have.
func (o *Options) Budget() int64 {
	if o.Layout == nil {
		return Budget(o.Job, max(o.Loaders, o.Scale.Most, 1)+o.Shadows, max(o.Constructors, 1))
	}
	more := max(o.Scale.Most-len(o.Layout.Loaders), 0)
	return o.Layout.Buffer(o.Job.Resources.LoaderBuffer) + Budget(o.Job, more+o.Shadows, max(o.Constructors, 1))
}

// LimitMemory tells Go's garbage collector the budget of this process: it works
// harder as memory, the program's own included, comes near the budget and the
// overhead. GOMEMLIMIT, where set, has the last word.
func LimitMemory(budget int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		memory.Limit(budget + overhead - program)
	}
}

// Roles are what shares a limit of memory.
type Roles struct {
	// Buffers are those of all of them, in bytes: each gets in proportion to what it asks for. 0: it is not known, and
	// a loader or a constructor gets Loader or Constructor of what fits, at most.
	Buffers             int64
	Loader, Constructor float64
	Processes           int // that they run in, at the most; 0: this one
}

// Roles are those of a service with these options.
func (o *Options) Roles() Roles {
	r := Roles{Buffers: o.Budget()}
	if o.Executable != "" {
		loaders := max(o.Loaders, 1)
		if o.Layout != nil {
			loaders = len(o.Layout.Loaders)
		}
		r.Processes = 1 + max(loaders, o.Scale.Most) + o.Shadows + max(o.Constructors, 1) // with the planner
	}
	return r
}

// Memory gives roles as much of their budgets as the machine lets the process have. It is safe for concurrent use.
type Memory struct {
	log   *slog.Logger
	roles Roles
	limit int64  // of all processes; 0: there is none
	by    string // who says so
	fits  int64  // of it, for buffers

	mu      sync.Mutex
	granted int64 // in this process
}

// NewMemory returns what some roles get of asked bytes, as a person says, or of what the control group of this process
// has if that is less, in bytes; 0 is all of that. It is the bound of what ranks add to the limit of this process's collector, too.
func NewMemory(asked int64, roles Roles, log *slog.Logger) *Memory {
	m := &Memory{log: log, roles: roles, limit: asked, by: "--memory"}
	group, err := cgroup.Read()
	if err != nil {
		log.Warn("the limits of this process's control group cannot be read: none is honoured", "err", err, "try", "--memory with what the process may take")
	}
	if group.Memory > 0 && (asked == 0 || group.Memory < asked) {
		m.limit, m.by = group.Memory, group.MemoryFile
	}
	whole := m.limit - m.limit/16 // a sixteenth for the kernel: sockets, files, page tables
	m.fits = whole - int64(max(roles.Processes, 1))*overhead
	memory.ClientsUpTo(max(whole-program, 0))
	return m
}

// share is what a role gets that asks for some bytes.
func (m *Memory) share(asked int64, part float64) int64 {
	switch {
	case m.limit == 0 || m.roles.Buffers > 0 && m.roles.Buffers <= m.fits:
		return asked
	case m.roles.Buffers > 0:
		part = float64(asked) / float64(m.roles.Buffers)
	}
	return min(asked, max(int64(part*float64(m.fits)), leastBudget))
}

// Loader returns how much of the budget that a job asks for a loader gets.
func (m *Memory) Loader(asked int64) int64 {
	return m.grant("resources.loader_buffer", asked, m.roles.Loader)
}

// Constructor does so for a constructor.
func (m *Memory) Constructor(asked int64) int64 {
	return m.grant("resources.constructor_buffer", asked, m.roles.Constructor)
}

// loaderFit is Loader, if there is a Memory.
func (m *Memory) loaderFit() func(int64) int64 {
	if m == nil {
		return nil
	}
	return m.Loader
}

// constructorFit is Constructor, if there is a Memory.
func (m *Memory) constructorFit() func(int64) int64 {
	if m == nil {
		return nil
	}
	return m.Constructor
}

// grant gives a role its budget, says so if that is less than what was asked for, and has Go's collector keep to what
// all of this process have.
func (m *Memory) grant(what string, asked int64, part float64) int64 {
	given := m.share(asked, part)
	if given == leastBudget && m.limit > 0 && given > m.fits {
		m.log.Warn("the memory of this process is less than it takes with the smallest buffers: the kernel may end it", "buffer", what, "bytes", asked, "limit", m.limit, "by", m.by, "least", given,
			"try", "more memory")
	} else if given < asked {
		m.log.Warn("a buffer is larger than what the memory of this process has room for: it is made smaller", "buffer", what, "bytes", asked, "limit", m.limit, "by", m.by, "fits", given,
			"try", "more memory, or that buffer in the job spec")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.granted += given
	LimitMemory(m.granted)
	return given
}

// flags are those of the process of one role that asks for some bytes: it gets the same as it would in this process.
func (m *Memory) flags(asked int64) []string {
	if m == nil || m.limit == 0 {
		return nil
	}
	return []string{"--memory", strconv.FormatInt((m.share(asked, 0)+overhead)/15*16+16, 10)}
}
