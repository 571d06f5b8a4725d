package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-data/millrace/internal/engine/schedule"
	"github.com/millrace-data/millrace/internal/fault"
)

// Options configure an executor. Limit and Slots are required.
type Options struct {
	Limit int64                      // bytes of partitions, waiting or in the hands of tasks and collectors
	Slots map[string]schedule.Amount // that tasks share, by resource; they are one worker, which never leaves
	Spill Spill                      // where partitions go that nothing can take while nothing works; nil: they are made again
}

// inboxLength is how many events wait for the loop: enough that a task that gives a partition and
// ends does not wait, and few enough that what they say is not old.
const inboxLength = 64

// Executor runs pipelines that share slots and memory. It is safe for concurrent use.
//
// One goroutine, Run's, owns all state below inbox. It takes in events, asks the policy, and
// starts tasks; it waits for nothing but events and the policy's clock.
type Executor struct {
	limit   int64
	spill   Spill
	mu      sync.Mutex     // guards names
	names   map[string]int // of resources
	began   time.Time
	stopped chan struct{}
	outside atomic.Int64 // bytes of the limit that others use
	turned  atomic.Bool  // the order of runs is another
	seen    ledgerSeen
	inbox   chan event

	ctx       context.Context
	resources []schedule.Resource
	workers   []*worker
	active    []*Pipeline // with runs, in the order of their first
	ending    []*Pipeline // without, whose tasks or collectors may have something yet
	running   []*task     // goroutines that have not returned
	waiting   []*task     // of them, for room
	used      int64       // bytes stored, those that collectors have included
	promised  int64
	pauses    []pause
	completed int // sources
	moving    int // partitions on their way to the disk or back
	numbers   int64
	asks      int64
	wait      sync.WaitGroup
}

// Provide adds slots of a resource that the executor does not have yet; of one that it has it changes nothing.
// Pipelines that need it are made afterwards.
func (e *Executor) Provide(ctx context.Context, name string, slots schedule.Amount) error {
	e.mu.Lock()
	_, known := e.names[name]
	if !known {
		e.names[name] = len(e.names)
	}
	r := e.names[name]
	e.mu.Unlock()
	if known {
		return nil
	}
	return e.send(ctx, provided{r, name, slots})
}

// Resize sets the slots of a resource that was provided. Tasks that have some keep them: with fewer slots than are
// taken none begins until enough have ended. No stage may need more than there are, at the least.
func (e *Executor) Resize(ctx context.Context, name string, slots schedule.Amount) error {
	r, known := e.known()[name]
	if !known {
		return fmt.Errorf("engine: slots of %q, which is none of the executor's resources", name)
	}
	return e.send(ctx, resized{r, slots})
}

// known are the numbers of the resources, by name.
func (e *Executor) known() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.names)
}

// event is something that the loop takes in.
type event interface{ apply(*Executor) }

// New returns an executor that does nothing until Run is called.
func New(o Options) (*Executor, error) {
	if o.Limit <= 0 || len(o.Slots) == 0 {
		return nil, fmt.Errorf("engine: an executor needs a limit of bytes and slots")
	}
	e := &Executor{limit: o.Limit, spill: o.Spill, names: map[string]int{}, stopped: make(chan struct{}), inbox: make(chan event, inboxLength), began: time.Now()}
	for i, name := range slices.Sorted(maps.Keys(o.Slots)) {
		e.names[name] = i
		e.resources = append(e.resources, schedule.Resource{Name: name})
	}
	joined{&Worker{Name: "own", Slots: o.Slots}}.apply(e)
	return e, nil
}

// Run executes what pipelines are given until ctx ends, and until all its goroutines have.
func (e *Executor) Run(ctx context.Context) error {
	e.ctx = ctx
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		wake := e.plan()
		e.seen.store(e)
		timer.Reset(wake)
		select {
		case ev := <-e.inbox:
			ev.apply(e)
			e.drain()
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	e.close(ctx)
	return ctx.Err()
}

// drain takes in the events that have come meanwhile, so that one decision answers all of them.
func (e *Executor) drain() {
	for range inboxLength {
		select {
		case ev := <-e.inbox:
			ev.apply(e)
		default:
			return
		}
	}
}

// close ends all runs, and takes in events until all tasks have ended.
func (e *Executor) close(ctx context.Context) {
	for _, p := range slices.Clone(e.active) {
		for _, r := range slices.Clone(p.runs) {
			e.fail(r, ctx.Err())
		}
	}
	all := make(chan struct{})
	go func() { e.wait.Wait(); close(all) }()
	for {
		select {
		case ev := <-e.inbox:
			ev.apply(e)
			continue
		case <-all:
		}
		break
	}
	e.drain()
	e.seen.store(e)
	close(e.stopped)
}

// errStopped is what callers hear of an executor that is no more.
var errStopped = fault.Lostf("the executor has ended")

// whyStopped is why a caller's own context ended, if it has, else errStopped.
func whyStopped(ctx context.Context) error { return cmp.Or(context.Cause(ctx), errStopped) }

// send gives the loop an event.
func (e *Executor) send(ctx context.Context, ev event) error {
	select {
	case e.inbox <- ev:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-e.stopped:
		return whyStopped(ctx)
	}
}

// now is the policy's time.
func (e *Executor) now() schedule.Nanos { return schedule.Nanos(time.Since(e.began)) }

// plan starts what can be started, and returns how long the loop may wait for events.
func (e *Executor) plan() time.Duration {
	for {
		e.order()
		e.answerAll()
		due, paused := e.resume()
		granted := e.grant()
		launched, wake := e.launchAll()
		if granted || launched {
			continue
		}
		e.fetchAll()
		wake = earliest(wake, due)
		if wake != 0 {
			return max(time.Duration(wake-e.now()), time.Microsecond)
		}
		if paused || !e.stuck() || !e.unblock() {
			return time.Hour // only an event changes anything
		}
	}
}

func earliest(a, b schedule.Nanos) schedule.Nanos {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// launchAll asks the policy for each pipeline, those that are needed first before the others, and does
// what it says. The second result is when it wants to be asked again.
func (e *Executor) launchAll() (launched bool, wake schedule.Nanos) {
	for i := 0; i < len(e.active); {
		p := e.active[i]
		d := e.decide(p)
		if !d.Launch {
			wake = earliest(wake, d.Wake)
			i++
			continue
		}
		e.launch(p.peek(d.Operator, e), d)
		launched, i = true, 0
	}
	return launched, wake
}

// launch starts a task that has its input.
func (e *Executor) launch(n *node, d schedule.Decision) {
	r := n.src.run
	p := r.pipeline
	p.unqueue(n)
	n.state = running
	if n.src.narrow {
		d.Promise = 0 // it has room for one partition at a time
	}
	t := &task{node: n, worker: e.place(n), grants: make(chan int64, 1), started: e.now(), room: d.Promise, slots: true}
	t.worker.take(e, p.ops[n.op].Needs)
	e.promise(p, n.op, d.Promise)
	in := make([]Partition, len(n.in))
	for i, s := range n.in {
		in[i] = s.part
		s.held = false
		t.pinned += s.bytes
	}
	ctx, end := context.WithCancelCause(r.life.ctx)
	t.end = end
	e.running = append(e.running, t)
	p.running[n.op] = append(p.running[n.op], t)
	p.ops[n.op].Running = append(p.ops[n.op].Running, schedule.Task{Started: t.started, Promise: t.room})
	r.tasks++
	e.wait.Go(func() { t.work(ctx, e, in, d.Promise) })
}
