package simulate

import (
	"container/heap"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/engine/schedule"
)

// Config is how a workload is run.
type Config struct {
	Limit  int64
	Pinned bool // the input of a running task counts until the task ends; else until it begins
	Policy schedule.Policy
	// Credits makes the ledger keep room for the operators after one that gives out.
	Credits bool
	// Ties, if not 0, is the seed of a random order of what happens at the same instant (see ties.go).
	Ties uint64
	// Trace, if set, is called with each event.
	Trace func(Event)
}

// Result is what a run came to.
type Result struct {
	Time      schedule.Nanos
	Stuck     bool           // tasks were left, and nothing could happen any more
	Tasks     int            // that ended
	PeakStore int64          // greatest sum of partitions in the store
	PeakAll   int64          // the same with outputs that executors held
	Stalled   schedule.Nanos // slot time lost to outputs without room
	Decisions int
}

// task is one that runs, or holds outputs that do not fit.
type task struct {
	op      int
	number  int
	lineage Lineage
	ends    schedule.Nanos
	out     []int64 // still to be given out
	given   int
	total   int64 // bytes of all outputs
	stalled bool
	slot    int // place in Operator.Running
	took    schedule.Nanos
	ended   schedule.Nanos
	promise int64
}

// run is the state of one simulation.
type run struct {
	w       *Workload
	cfg     Config
	s       schedule.Snapshot
	queues  [][]Lineage
	running taskHeap
	byOp    [][]*task // in the order of Operator.Running
	held    int64
	gathers gathering
	next    int // number of the next task
	ties    *ties
	res     Result
}

// Run simulates the workload to its end.
func Run(w Workload, cfg Config) Result {
	r := newRun(&w, cfg)
	for {
		wake := r.decide()
		if len(r.running) == 0 && wake == 0 {
			break
		}
		if len(r.running) > 0 && (wake == 0 || r.running[0].ends <= wake) {
			r.s.Now = r.running[0].ends
		} else {
			r.s.Now = wake
		}
		if r.ties != nil {
			r.tied()
		}
		for r.due() {
			r.finish(heap.Pop(&r.running).(*task))
		}
		r.emit()
	}
	r.res.Time = r.s.Now
	r.res.Stuck = r.left()
	return r.res
}

func newRun(w *Workload, cfg Config) *run {
	r := &run{w: w, cfg: cfg, queues: make([][]Lineage, len(w.Stages)), byOp: make([][]*task, len(w.Stages))}
	r.s = schedule.Snapshot{Limit: cfg.Limit, Pinned: cfg.Pinned, Operators: make([]schedule.Operator, len(w.Stages))}
	for _, res := range w.Resources {
		res.Free = res.Slots
		r.s.Resources = append(r.s.Resources, res)
	}
	for i, st := range w.Stages {
		r.s.Operators[i] = schedule.Operator{Name: st.Name, Needs: st.Needs, Declared: st.Declared}
		r.s.Operators[i].Declared.Gathers = st.Gather > 0
	}
	r.gathers = newGathering(w)
	if cfg.Ties != 0 {
		r.ties = newTies(cfg.Ties)
	}
	r.s.Operators[0].Estimate.Out = w.Declared
	for i := range w.Sources {
		r.queues[0] = append(r.queues[0], Lineage{Source: i}.below(i, 0))
	}
	r.s.Operators[0].Queued = w.Sources
	return r
}

// decide asks the policy until it has nothing more to do, and returns when to ask again.
func (r *run) decide() schedule.Nanos {
	for {
		if r.ties != nil {
			r.note()
		}
		d := r.ask()
		if !d.Launch {
			if d.Wake != 0 && d.Wake <= r.s.Now {
				panic(fmt.Sprintf("simulate: a policy asks at %d to be asked again at %d", r.s.Now, d.Wake))
			}
			return d.Wake
		}
		r.launch(d)
		r.emit()
	}
}

func (r *run) launch(d schedule.Decision) {
	op := &r.s.Operators[d.Operator]
	if !r.s.Ready(d.Operator) {
		panic("simulate: a policy launched what is not ready")
	}
	l := r.queues[d.Operator][0]
	r.queues[d.Operator] = r.queues[d.Operator][1:]
	op.Queued--
	op.QueuedBytes -= l.In
	op.NextBytes = r.nextBytes(d.Operator)
	for i, need := range op.Needs {
		r.s.Resources[i].Free -= need
	}
	if !r.cfg.Pinned {
		r.leaves(d.Operator, l.In)
	}
	r.s.Promised += d.Promise
	op.Promised += d.Promise
	took, out := r.w.Stages[d.Operator].Cost(l)
	t := &task{op: d.Operator, number: r.next, lineage: l, took: took, ends: r.s.Now + took, out: out, slot: len(op.Running), promise: d.Promise}
	for _, size := range out {
		t.total += size
	}
	r.next++
	op.Running = append(op.Running, schedule.Task{Started: r.s.Now, Promise: d.Promise})
	r.byOp[d.Operator] = append(r.byOp[d.Operator], t)
	heap.Push(&r.running, t)
	r.trace(Event{Kind: Started, Op: d.Operator, Task: t.number})
}

func (r *run) nextBytes(op int) int64 {
	if len(r.queues[op]) == 0 {
		return 0
	}
	return r.queues[op][0].In
}

// leaves takes the input of an operator's task out of the store.
func (r *run) leaves(op int, in int64) {
	r.s.Used -= in
	if op > 0 {
		r.s.Operators[op-1].Stored -= in
	}
}

// finish ends the work of a task; what it gives out waits for room.
func (r *run) finish(t *task) {
	op := &r.s.Operators[t.op]
	if r.cfg.Pinned {
		r.leaves(t.op, t.lineage.In)
		if r.ties != nil {
			r.keep(t) // what it gives may come after other events
		}
	}
	t.stalled, t.ended = true, r.s.Now
	op.Running[t.slot].Stalled = true
	r.held += t.total
	r.res.PeakAll = max(r.res.PeakAll, r.s.Used+r.held)
	r.give(t, r.atOnce())
	if t.stalled {
		r.trace(Event{Kind: Stalled, Op: t.op, Task: t.number, Bytes: t.left()})
	}
}

func (t *task) left() (n int64) {
	for _, size := range t.out[t.given:] {
		n += size
	}
	return n
}

// give moves outputs into the store, at most a number of them, while there is room, and releases the task when
// none is left.
func (r *run) give(t *task, most int) bool {
	moved := false
	for ; t.given < len(t.out); most-- {
		size := t.out[t.given]
		if most == 0 || size > r.room(t) {
			return moved
		}
		keep := min(t.promise, size)
		t.promise -= keep
		op := &r.s.Operators[t.op]
		r.s.Promised -= keep
		op.Promised -= keep
		op.Running[t.slot].Promise = t.promise
		op.Running[t.slot].Given += size
		r.s.Used += size
		op.Stored += size
		r.held -= size
		r.res.PeakStore = max(r.res.PeakStore, r.s.Used)
		if l := t.lineage.below(t.given, size); !r.gathers.takes(t.op+1, l) {
			r.queue(t.op+1, l)
		}
		t.given++
		moved = true
	}
	if moved && r.later() {
		return true // it ends with the next call
	}
	r.release(t)
	return true
}

// queue adds a task that has its input.
func (r *run) queue(op int, l Lineage) {
	r.queues[op] = append(r.queues[op], l)
	o := &r.s.Operators[op]
	o.Queued++
	o.QueuedBytes += l.In
	o.NextBytes = r.nextBytes(op)
}

// room is how many bytes a task may put into the store now.
func (r *run) room(t *task) int64 {
	defer r.within(r.gathers.later(t.lineage))()
	if r.cfg.Credits {
		return max(t.promise, r.s.RoomOf(t.op, t.slot)+t.promise)
	}
	return r.s.Limit - r.s.Used - r.s.Promised + t.promise
}

func (r *run) release(t *task) {
	op := &r.s.Operators[t.op]
	for i, need := range op.Needs {
		r.s.Resources[i].Free += need
	}
	r.s.Promised -= t.promise
	op.Promised -= t.promise
	op.Running = slices.Delete(op.Running, t.slot, t.slot+1)
	r.byOp[t.op] = slices.Delete(r.byOp[t.op], t.slot, t.slot+1)
	for i, later := range r.byOp[t.op][t.slot:] {
		later.slot = t.slot + i
	}
	t.stalled = false
	r.res.Stalled += r.s.Now - t.ended
	r.res.Tasks++
	op.Estimate = op.Estimate.Learn(schedule.Observation{
		Duration: t.took, In: t.lineage.In, Out: t.total, Parts: len(t.out),
	})
	if l, ready := r.gathers.ended(t.op, t.lineage); ready {
		r.queue(r.gathers.op, l)
	}
	r.trace(Event{Kind: Ended, Op: t.op, Task: t.number, Bytes: t.total})
}

// emit gives out what is held, the operators nearest to the end first, and within one
// the task that waits longest; of sources, where the ledger keeps room for older ones, the first that has some.
func (r *run) emit() {
	if r.ties != nil {
		for r.giveOne() {
		}
		return
	}
	for moved := true; moved && r.held > 0; {
		moved = false
		for op := len(r.byOp) - 1; op >= 0 && !moved; op-- {
			if first := r.longest(op); first != nil {
				moved = r.give(first, len(first.out))
			}
			if op == 0 && !moved && r.cfg.Credits {
				moved = slices.ContainsFunc(slices.Clone(r.byOp[0]), func(t *task) bool { return t.stalled && r.give(t, len(t.out)) })
			}
		}
	}
}

func (r *run) longest(op int) (first *task) {
	for _, t := range r.byOp[op] {
		if t.stalled && (first == nil || t.ended < first.ended || t.ended == first.ended && t.number < first.number) {
			first = t
		}
	}
	return first
}

// left reports whether a task or a partition remains.
func (r *run) left() bool {
	for i := range r.queues {
		if len(r.queues[i]) > 0 || len(r.byOp[i]) > 0 {
			return true
		}
	}
	return false
}

// taskHeap orders tasks by their ends, and by number at equal ends.
type taskHeap []*task

func (h taskHeap) Len() int { return len(h) }
func (h taskHeap) Less(i, j int) bool {
	return h[i].ends < h[j].ends || h[i].ends == h[j].ends && h[i].number < h[j].number
}
func (h taskHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *taskHeap) Push(x any)   { *h = append(*h, x.(*task)) }
func (h *taskHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
