package service

import (
	"os"
	"runtime/debug"

	"github.com/millrace-data/millrace/jobspec"
)

// overhead is what a role takes beside its budget: code, the planner's metadata,
// what is being read of blocks, and gRPC's buffers.
const overhead = 96 << 20

// program is the part of overhead that Go's collector does not see: pages of the program
// itself, 44 MiB once its code runs, memory that is shared with the workers of functions (7 MiB
// in a job of one), and what the collector is late by.
const program = 56 << 20

// Budget is the memory that a service of one process may take, in bytes.
func Budget(job *jobspec.Job, loaders, constructors int) int64 {
	return int64(loaders)*job.Resources.LoaderBuffer + int64(constructors)*job.Resources.ConstructorBuffer
}

// Budget is that of a service with these options.
func (o *Options) Budget() int64 {
	if o.Layout == nil {
		return Budget(o.Job, max(o.Loaders, 1)+o.Shadows, max(o.Constructors, 1))
	}
	return o.Layout.Buffer(o.Job.Resources.LoaderBuffer) + Budget(o.Job, o.Shadows, max(o.Constructors, 1))
}

// LimitMemory tells Go's garbage collector the budget of this process: it works
// harder as memory, the program's own included, comes near the budget and the
// overhead. GOMEMLIMIT, where set, has the last word.
func LimitMemory(budget int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(budget + overhead - program)
	}
}
