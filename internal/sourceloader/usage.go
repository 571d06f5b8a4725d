package sourceloader

import (
	"context"
	"slices"
	"strings"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// Environment is what the worker processes of an environment of functions do.
type Environment struct {
	Name      string // the interpreter, and the folder of the modules
	Runtime   string // versions of what runs the functions
	Workers   int    // processes
	Busy      int    // of them, with a batch
	Waiting   int    // batches that wait for one
	Restarts  int    // of workers and of the fork server
	LastDeath string // why a worker ended last; "": none did
	Problem   string // why workers do not start; "": they do
	Network   bool   // functions have it
	Pools     []PoolUsage
}

// PoolUsage is what a worker pool does for an environment of functions.
type PoolUsage struct {
	Name          string // address
	Connected     bool
	Workers       int    // that serve the environment
	OnTheWay      int    // batches
	Batches       uint64 // done so far
	Losses        uint32 // batches that were lost with the pool or the way to it
	Problem       string // why it does not serve, or not all functions
	Busy, Waiting int    // workers with a batch, and batches that wait for one, whoever's
}

// engineUsage is what the engine and the functions of this process do, for the status.
func (l *Loader) engineUsage(ctx context.Context) (stages []*pb.StageUsage, workers []*pb.WorkersUsage) {
	if l.executor != nil {
		stages = l.executor.stages(ctx)
	}
	if l.opts.Environments == nil {
		return stages, nil
	}
	for _, e := range l.opts.Environments() {
		u := &pb.WorkersUsage{
			Name: e.Name, Runtime: e.Runtime, Workers: uint32(e.Workers), Busy: uint32(e.Busy), Waiting: uint32(e.Waiting),
			Restarts: uint32(e.Restarts), LastDeath: e.LastDeath, Problem: e.Problem, Network: e.Network,
		}
		for _, p := range e.Pools {
			u.Pools = append(u.Pools, &pb.PoolUsage{
				Name: p.Name, Connected: p.Connected, Workers: uint32(p.Workers), OnTheWay: uint32(p.OnTheWay), Batches: p.Batches,
				Losses: p.Losses, Problem: p.Problem, Busy: uint32(p.Busy), Waiting: uint32(p.Waiting),
			})
		}
		workers = append(workers, u)
	}
	return stages, workers
}

// note keeps the flow of a source for the status.
func (x *executor) note(f *flow) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.flows = slices.DeleteFunc(x.flows, func(g *flow) bool { return g.source.Spec.Name == f.source.Spec.Name })
	x.flows = append(x.flows, f)
	slices.SortFunc(x.flows, func(a, b *flow) int { return strings.Compare(a.source.Spec.Name, b.source.Spec.Name) })
}

// stages are those of all sources. What the engine does not say, as it ends, is left out.
func (x *executor) stages(ctx context.Context) (all []*pb.StageUsage) {
	x.mu.Lock()
	flows := slices.Clone(x.flows)
	x.mu.Unlock()
	for _, f := range flows {
		u, err := f.pipeline.Usage(ctx)
		if err != nil {
			return all
		}
		for i, s := range u.Stages {
			stage := &pb.StageUsage{
				Source: f.source.Spec.Name, Stage: s.Name, Running: uint32(s.Running), WaitingForRoom: uint32(s.Waiting),
				Queued: uint32(s.Queued), QueuedBytes: uint64(s.QueuedBytes),
			}
			if i == 0 {
				stage.HeldBytes, stage.SpilledBytes, stage.SpilledEver = uint64(u.Stored), uint64(u.Spilled), uint64(u.Written)
			}
			all = append(all, stage)
		}
	}
	return all
}
