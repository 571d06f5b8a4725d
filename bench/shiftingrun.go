package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace-data/millrace/internal/planner/status"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/trainer"
)

// shiftingTrial is a service and its trainer.
type shiftingTrial struct {
	name string
	job  *shiftingJob
	args serveArgs
	pace time.Duration // 0: as fast as steps come
	warm int           // steps before the clock starts; 0: shiftingWarm
	most time.Duration // after which a run is cut off; 0: never
	far  bool          // the store is far away from the beginning; else when the clock starts
}

// Steps before the clock starts, in which the store is near: processes start, and sources are opened. Of layouts all loaders
// open theirs, which is no part of a rate.
const (
	shiftingWarm = 3
	layoutWarm   = 8
)

// shiftingOutcome is a run of a trial, after the first steps.
type shiftingOutcome struct {
	name          string
	pace          time.Duration
	seconds       float64
	cpu           float64 // of the service, in seconds
	tokens        int64
	wait          []time.Duration // by step, the first ones too
	loaders       []int           // by step
	loaderSeconds float64
	decisions     []shiftingDecision
}

// shiftingDecision is one of the scaler's.
type shiftingDecision struct {
	step int64 // that the trainer was at
	did  string
}

// Names of the further measurements.
const (
	waitedShare   = "waited % at the pace"
	waitedSeconds = "waited s"
	stalledSteps  = "stalled steps"
	loaderSeconds = "loader-seconds"
	mostLoaders   = "most loaders"
	scalings      = "decisions"
	serviceCPU    = "service cpu s"
	layoutWorkers = "workers"
	layoutRound   = "round"
	layoutBuffers = "buffers MiB"
)

// waits is what tables show: a step is stalled if a rank waited longer than a tenth of the pace.
func (o *shiftingOutcome) waits() sample {
	waited, stalled := time.Duration(0), 0
	for _, w := range o.wait[shiftingWarm:] {
		waited += w
		if w > o.pace/10 {
			stalled++
		}
	}
	return sample{100 * waited.Seconds() / o.seconds, map[string]float64{
		waitedSeconds: waited.Seconds(), stalledSteps: float64(stalled), loaderSeconds: o.loaderSeconds,
		mostLoaders: float64(slices.Max(o.loaders)), scalings: float64(len(o.decisions)), serviceCPU: o.cpu,
	}}
}

// once runs a trial. A step that is not the reference reader's is an error.
func (b *shifting) once(ctx context.Context, t shiftingTrial) (*shiftingOutcome, error) {
	t.args.Spec, t.args.Workers = t.job.spec, 1
	b.store.wait.Store(0)
	if t.far {
		b.store.wait.Store(int64(b.opts.wait))
	}
	service, err := start(ctx, "serve", t.args)
	if err != nil {
		return nil, err
	}
	defer service.stop()
	var address string
	if err := service.receive(&address); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w := &shiftingWatch{shifting: b, job: t.job, most: t.most, warm: cmp.Or(t.warm, shiftingWarm), stop: stop, pid: service.pid()}
	w.outcome.name, w.outcome.pace = t.name, t.pace
	end, err := w.follow(ctx, address)
	if err != nil {
		return nil, err
	}
	res, err := trainer.Run(ctx, trainer.Options{Address: address, Job: t.job.job, Steps: int64(len(t.job.digests)), OnStep: func(s trainer.Step) { w.took(ctx, s) }})
	end()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errEnough):
		w.outcome.seconds = time.Since(w.began).Seconds()
		return &w.outcome, nil
	case cause != nil:
		return nil, cause
	}
	if err == nil && res.Next != int64(len(t.job.digests)) {
		err = fmt.Errorf("%d steps came, want %d", res.Next, len(t.job.digests))
	}
	return &w.outcome, err
}

// errEnough cuts a run off.
var errEnough = errors.New("it ran for long enough")

// shiftingWatch takes the steps of a run, and looks at its service.
type shiftingWatch struct {
	*shifting
	job   *shiftingJob
	warm  int           // steps before the clock starts
	most  time.Duration // after which the run is cut off; 0: never
	stop  context.CancelCauseFunc
	pid   int // of the service
	last  time.Time
	began time.Time     // the clock
	cpu   time.Duration // of the service, when the clock started

	mu      sync.Mutex // guards the fields below
	loaders int        // there are now
	step    int64      // of the trainer
	did     []string   // decisions that the status showed last
	outcome shiftingOutcome
}

// took takes a step, and trains for the pace.
func (w *shiftingWatch) took(ctx context.Context, s trainer.Step) {
	if s.Digest != w.job.digests[s.Step] {
		w.stop(fmt.Errorf("digest step=%d %x, the reference reader has %x", s.Step, s.Digest, w.job.digests[s.Step]))
		return
	}
	now := time.Now()
	cpu, err := processCPU(w.pid)
	if err != nil {
		w.stop(err)
		return
	}
	w.mu.Lock()
	o := &w.outcome
	switch {
	case s.Step == int64(w.warm)-1:
		w.cpu = cpu
		w.store.wait.Store(int64(w.opts.wait))
		if w.began = now; w.most > 0 {
			time.AfterFunc(w.most, func() { w.stop(errEnough) }) // nobody listens when the run has ended
		}
	case s.Step >= int64(w.warm):
		took := now.Sub(w.last).Seconds()
		o.seconds, o.loaderSeconds = o.seconds+took, o.loaderSeconds+took*float64(w.loaders)
		o.tokens, o.cpu = o.tokens+s.Tokens, (cpu - w.cpu).Seconds()
	}
	o.wait, o.loaders = append(o.wait, s.Wait), append(o.loaders, w.loaders)
	w.last, w.step = now, s.Step
	w.mu.Unlock()
	if o.pace > 0 {
		select {
		case <-time.After(o.pace):
		case <-ctx.Done():
		}
	}
}

// watchEvery is how often the service is asked how many loaders it has.
const watchEvery = 100 * time.Millisecond

// follow looks at the service until the function that it returns is called.
func (w *shiftingWatch) follow(ctx context.Context, address string) (end func(), err error) {
	conn, err := rpc.Dial(address, rpc.Security{})
	if err != nil {
		return nil, err
	}
	planner := pb.NewPlannerClient(conn)
	w.look(ctx, planner)
	ctx, stop := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		for ctx.Err() == nil {
			w.look(ctx, planner)
			select {
			case <-time.After(watchEvery):
			case <-ctx.Done():
			}
		}
	})
	return func() {
		stop()
		looking.Wait()
		conn.Close()
	}, nil
}

func (w *shiftingWatch) look(ctx context.Context, planner pb.PlannerClient) {
	reply, err := planner.Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return // it is asked again; a service that is gone fails the trainer
	}
	var s status.Service
	if json.Unmarshal(reply.Json, &s) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loaders = len(s.Loaders)
	if s.Scaling == nil || slices.Equal(s.Scaling.Did, w.did) {
		return
	}
	for _, did := range added(w.did, s.Scaling.Did) {
		w.outcome.decisions = append(w.outcome.decisions, shiftingDecision{w.step, did})
	}
	w.did = s.Scaling.Did
}

// added are the entries at the end of now that before did not have: both show the last ones of the same list.
func added(before, now []string) []string {
	for n := min(len(before), len(now)); n > 0; n-- {
		if slices.Equal(before[len(before)-n:], now[:n]) {
			return now[n:]
		}
	}
	return now
}
