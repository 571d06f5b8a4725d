package engine

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"

	"github.com/millrace-data/millrace/internal/engine/schedule"
)

// Pipeline is a chain of stages that an executor runs, any number of times at once.
type Pipeline struct {
	ex     *Executor
	stages []Stage
	// gathers is the stage whose tasks take what several source tasks gave; 0: none does.
	gathers int
	cursor  atomic.Int64
	weight  atomic.Int64

	// Of the executor's loop:
	runs    []*run // that are not over, in the order of their turns
	ops     []schedule.Operator
	snap    schedule.Snapshot
	running [][]*task // by stage, oldest first
	used    int64
	prom    int64
	credits int64 // bytes that it needs at least for any task to end
	reserve int64 // bytes that only the first source of all may use
	spilled int64 // bytes of partitions outside of memory
	written int64 // bytes of all that ever were
}

// Pipeline returns a pipeline of these stages.
func (e *Executor) Pipeline(stages []Stage) (*Pipeline, error) {
	names := e.known()
	stages = withDefaults(stages)
	if err := checkStages(stages, names); err != nil {
		return nil, err
	}
	p := &Pipeline{ex: e, stages: stages, ops: operators(stages, names), running: make([][]*task, len(stages))}
	p.gathers = max(slices.IndexFunc(stages, func(s Stage) bool { return s.Gather != 0 }), 0)
	for i := range p.ops {
		if i+1 < len(p.ops) {
			out := p.ops[i].Declared.Partition
			if i > 0 {
				in := p.ops[i-1].Declared.Partition
				out = max(out, in*max(p.ops[i].Declared.Ratio, 1000)/1000)
			}
			p.credits += out
		}
	}
	if !stages[len(stages)-1].Sink { // outputs of later sources wait for those of the first
		p.reserve = min(p.credits, e.limit/2)
	}
	if p.gathers > 0 { // and what they give for those that are gathered first
		p.reserve = e.limit / 2
	}
	return p, nil
}

// Turn tells where the pipeline is, and how much of what is consumed comes from it: runs with a
// Seq near to the cursor, of pipelines with a large weight, go first.
func (p *Pipeline) Turn(cursor, weight int64) {
	p.cursor.Store(cursor)
	p.weight.Store(weight)
	p.ex.turned.Store(true)
}

// Run does the work and calls take with all that it gives, in the order of the sources and,
// within one, of the data. A partition is the caller's, and counts as stored until take returns.
// It returns when all its tasks have ended, with the first error of a task or of take, or that of ctx.
func (p *Pipeline) Run(ctx context.Context, w Work, take func(source int, part Partition) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	r := newRun(p, w)
	r.life = lifetime{ctx, end}
	if err := p.ex.send(ctx, begun{r}); err != nil {
		return err
	}
	var failed error
	for {
		if failed == nil {
			failed = p.ex.send(ctx, wanted{r})
		}
		a, err := r.await(p.ex, failed)
		if err != nil {
			return cmp.Or(failed, err)
		}
		if a.end {
			return cmp.Or(failed, a.err)
		}
		for i := 0; i < len(a.parts) && failed == nil; i++ {
			failed = take(a.parts[i].source, a.parts[i].part)
		}
	}
}

// await waits for an answer to what was wanted; after a failure, for the end of the run.
func (r *run) await(e *Executor, failed error) (answer, error) {
	ctx := r.life.ctx
	if failed != nil {
		ctx = context.WithoutCancel(ctx)
		if e.send(ctx, cancelled{r, failed}) != nil { // the executor has ended
			return answer{}, failed
		}
	}
	for {
		select {
		case a := <-r.answers:
			if failed == nil || a.end {
				return a, nil
			}
		case <-ctx.Done(): // by the caller, or by the loop, which then says why
			return r.await(e, context.Cause(ctx))
		case <-e.stopped:
			return answer{}, cmp.Or(failed, whyStopped(ctx))
		}
	}
}

// lifetime is the context of a run's tasks.
type lifetime struct {
	ctx context.Context
	end context.CancelCauseFunc
}

// answer is what the collector of a run hears.
type answer struct {
	parts []output
	end   bool
	err   error
}

type output struct {
	source int
	part   Partition
}

// queue adds a task that has its input.
func (p *Pipeline) queue(n *node) {
	ready := &n.src.run.ready[n.op]
	at, _ := slices.BinarySearchFunc(*ready, n, (*node).before)
	*ready = slices.Insert(*ready, at, n)
	n.state = queued
	p.ops[n.op].Queued++
	p.ops[n.op].QueuedBytes += n.bytes
}

// unqueue takes a task out.
func (p *Pipeline) unqueue(n *node) {
	ready := &n.src.run.ready[n.op]
	at := slices.Index(*ready, n)
	if at < 0 {
		return
	}
	*ready = slices.Delete(*ready, at, at+1)
	n.state = idle
	p.ops[n.op].Queued--
	p.ops[n.op].QueuedBytes -= n.bytes
}

// peek is the task of a stage that goes next, or nil.
func (p *Pipeline) peek(op int, e *Executor) *node {
	for _, r := range p.runs {
		for _, n := range r.ready[op] {
			if n.turn() && (op > 0 || n.src.barred < e.completed || n.src == e.first()) {
				return n
			}
		}
	}
	return nil
}

// snapshot is what the policy hears of a pipeline, or of what can begin of one of its sources alone. What others have, and
// need to go on, is no part of its limit.
func (e *Executor) snapshot(p *Pipeline, only *source) *schedule.Snapshot {
	s := &p.snap
	*s = schedule.Snapshot{Now: e.now(), Resources: e.resources[:min(len(p.ops[0].Needs), len(e.resources))], Operators: p.ops, Limit: e.limitOf(p), Used: p.used, Promised: p.prom, Pinned: true}
	for op := range p.stages {
		o := &p.ops[op]
		o.Queued, o.NextBytes = 0, 0
		n := p.peek(op, e)
		if n == nil || e.place(n) == nil || only != nil && n.src != only {
			continue
		}
		o.NextBytes = n.bytes
		for _, r := range p.runs {
			o.Queued += len(r.ready[op])
		}
	}
	return s
}
