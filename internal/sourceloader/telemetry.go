package sourceloader

import (
	"context"
	"time"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/telemetry"
)

// show shows the loader on the board until the function that it returns is called.
func (l *Loader) show() (remove func()) {
	return l.opts.Telemetry.Add(telemetry.Part{Role: "loader", ID: l.opts.ID, Metrics: l.observe, Ready: l.unready})
}

// unready says what the loader waits for before it reads; "" when it does.
func (l *Loader) unready() string {
	if l.session.Load() == nil {
		return "a planner at " + l.opts.Planner
	}
	return ""
}

// engineTime is how long the engine may take to say what its stages do.
const engineTime = time.Second

// observe gives the values of the loader's metrics, from what it reports to the planner, too.
func (l *Loader) observe(put telemetry.Observe) {
	select {
	case <-l.ready:
	default:
		return // there is no job yet
	}
	ctx, cancel := context.WithTimeout(l.life, engineTime)
	defer cancel()
	id, u := l.opts.ID, l.usage(ctx)
	put(telemetry.LoaderMemory, float64(u.HeldBytes), id)
	put(telemetry.LoaderMemoryLimit, float64(u.BudgetBytes), id)
	put(telemetry.LoaderDisk, float64(u.DiskBytes), id)
	put(telemetry.LoaderDiskLimit, float64(u.DiskBudgetBytes), id)
	problem := 0.0
	if u.DiskProblem != "" {
		problem = 1
	}
	put(telemetry.LoaderDiskProblem, problem, id)
	put(telemetry.LoaderRead, float64(u.ReadBytes), id)
	put(telemetry.LoaderBlocks, float64(u.BlocksRead), id)
	put(telemetry.LoaderRereads, float64(u.BlocksReread), id)
	put(telemetry.LoaderStale, float64(u.StaleRefused), id)
	observeEngine(id, u, put)
}

func observeEngine(id string, u *pb.LoaderUsage, put telemetry.Observe) {
	for _, s := range u.Stages {
		put(telemetry.StageTasks, float64(s.Running-s.WaitingForRoom), id, s.Source, s.Stage, "running")
		put(telemetry.StageTasks, float64(s.WaitingForRoom), id, s.Source, s.Stage, "waiting_for_room")
		put(telemetry.StageTasks, float64(s.Queued), id, s.Source, s.Stage, "queued")
		put(telemetry.StageQueued, float64(s.QueuedBytes), id, s.Source, s.Stage)
	}
	for _, f := range u.Functions {
		label := telemetry.Environment(f.Name)
		put(telemetry.FunctionWorkers, float64(f.Busy), id, label, "busy")
		put(telemetry.FunctionWorkers, float64(f.Workers)-float64(f.Busy), id, label, "idle")
		put(telemetry.FunctionWaiting, float64(f.Waiting), id, label)
		put(telemetry.FunctionRestarts, float64(f.Restarts), id, label)
	}
}
