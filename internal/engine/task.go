package engine

import (
	"context"
	"time"

	"github.com/millrace-data/millrace/internal/engine/schedule"
)

// task is one attempt at a node: a goroutine, and what the loop knows of it.
type task struct {
	node    *node
	worker  *worker
	end     context.CancelCauseFunc
	grants  chan int64
	started schedule.Nanos

	room     int64 // bytes of the ledger that are kept for it
	pinned   int64 // bytes of its input, which counts as stored
	asks     int64 // bytes that it waits for
	asked    int64 // when it began to wait, in asks
	emitted  int
	out      int64
	released bool // its input is gone
	slots    bool // it has its slots
	orphan   bool // nobody wants what it gives any more
}

// Output takes what a task gives. It is for the task's goroutine.
type Output struct {
	ex     *Executor
	task   *task
	ctx    context.Context
	room   int64
	waited time.Duration
}

// Target is the size that partitions are cut at.
func (o *Output) Target() int64 { return o.task.stage().Partition }

// Reserve makes sure that the task has room for n bytes beside what it gave, and waits for it. A task
// reserves before it takes memory, so that when it waits it holds no more than it reserved.
func (o *Output) Reserve(n int64) error {
	if n <= o.room {
		return nil
	}
	began := time.Now()
	defer func() { o.waited += time.Since(began) }()
	if err := o.ex.send(o.ctx, asked{o.task, n - o.room}); err != nil {
		return err
	}
	select {
	case granted := <-o.task.grants:
		o.room += granted
		return nil
	case <-o.ctx.Done():
		return context.Cause(o.ctx)
	}
}

// Release says that the task does not need its input any more. The bytes of it are room for what
// the task gives. If the task is lost after that, it begins again at the source task.
func (o *Output) Release() error {
	if o.task.node.op == 0 || o.task.node.bytes == 0 {
		return nil
	}
	o.room += o.task.node.bytes
	return o.ex.send(o.ctx, released{o.task})
}

// Emit gives a partition, for which it waits for room if too little was reserved.
func (o *Output) Emit(p Partition) error {
	bytes := p.Bytes()
	if err := o.Reserve(bytes); err != nil {
		return err
	}
	o.room -= bytes
	return o.ex.send(o.ctx, emitted{o.task, p, bytes, digestOf(p)})
}

func digestOf(p Partition) uint64 {
	if d, ok := p.(interface{ Digest() uint64 }); ok {
		return d.Digest()
	}
	return uint64(p.Bytes())
}

func (t *task) stage() *Stage { return &t.node.src.run.pipeline.stages[t.node.op] }

// work is the goroutine of a task.
func (t *task) work(ctx context.Context, ex *Executor, in []Partition, room int64) {
	defer t.end(nil)
	out := &Output{ex: ex, task: t, ctx: ctx, room: room}
	err := t.worker.ready(ctx, t.stage())
	switch {
	case err != nil:
	case t.node.task != nil:
		err = t.node.task.Read(ctx, out)
	default:
		err = t.stage().Process(ctx, in, out)
	}
	ex.inbox <- ended{t, err, out.waited} // the loop takes in events until all tasks have ended
}
