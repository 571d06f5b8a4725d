package sourceloader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/failpoint"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// Orders are taken in apart from being executed. One goroutine takes in each as it comes,
// and never waits for a file: what is released is free at once, and bans and manifests hold
// for whatever is read from then on. Workers take what is left to do, in the order it was
// asked for. A block that is released after it was asked for is not read any more.

// opening is how many sources a loader opens at a time, beside the blocks that its workers read: almost all of it is waiting for
// the store, of which each may have some requests under way (order.Index), and those hold a few MiB together. With more of
// them, a loader of hundreds of local sources would compute for nothing else.
const opening = 8

// serve takes in the orders that each gives it, one after the other, and executes them,
// until each ends or something fails.
func (l *Loader) serve(ctx context.Context, each func(context.Context, func(*pb.LoaderOrder) error) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for range l.opts.Workers {
		g.Go(func() error { return l.work(ctx, l.queue) })
	}
	for range opening {
		g.Go(func() error { return l.work(ctx, l.opens) })
	}
	g.Go(func() error { return l.reportUsage(ctx) })
	g.Go(func() error {
		return each(ctx, func(order *pb.LoaderOrder) error { return l.take(ctx, order) })
	})
	return g.Wait()
}

// take takes in an order. It is called by one goroutine, and waits for nothing.
func (l *Loader) take(ctx context.Context, order *pb.LoaderOrder) error {
	if _, first := order.Order.(*pb.LoaderOrder_Job); !first && l.cache == nil {
		return fmt.Errorf("the planner gave an order before the job: %v", order)
	}
	switch o := order.Order.(type) {
	case *pb.LoaderOrder_Job:
		return l.takeJob(o.Job)
	case *pb.LoaderOrder_Add:
		return l.add(o.Add)
	case *pb.LoaderOrder_Frozen:
		l.freeze(o.Frozen)
	case *pb.LoaderOrder_Place:
		l.place.Store(o.Place)
	case *pb.LoaderOrder_Bans:
		l.ban(o.Bans.Bans)
		l.readyOnce.Do(func() { close(l.ready) })
	case *pb.LoaderOrder_Release:
		before := floorsOf(o.Release)
		l.queue.release(before)
		failpoint.Hit(failpoint.ReleaseMiddle)
		l.cache.release(before)
	case *pb.LoaderOrder_Read:
		l.queue.read(blockID{o.Read.Source, o.Read.Seq})
	case *pb.LoaderOrder_Index:
		if o.Index.Ahead {
			l.opens.do(func(ctx context.Context) error { return l.openAhead(ctx, o.Index.Source, firstAgain) })
			return nil
		}
		l.opens.do(func(ctx context.Context) error { return l.index(ctx, o.Index.Source) })
	case *pb.LoaderOrder_Find:
		l.queue.do(func(ctx context.Context) error { return l.find(ctx, o.Find) })
	}
	return nil
}

func floorsOf(r *pb.ReleaseBlocks) map[uint32]uint64 {
	before := make(map[uint32]uint64, len(r.Source))
	for i, source := range r.Source {
		before[source] = r.Before[i]
	}
	return before
}

// work executes what is in a queue until ctx ends.
func (l *Loader) work(ctx context.Context, q *queue) error {
	for {
		t, err := q.next(ctx)
		if err != nil {
			return err
		}
		if t.run != nil {
			err = t.run(ctx)
		} else {
			err = l.readBlock(ctx, request{t.block, &t.released})
		}
		if q.done(t); err != nil {
			return err
		}
	}
}

// readBlock reads a block and tells the planner of it, if it was not released meanwhile.
func (l *Loader) readBlock(ctx context.Context, r request) error {
	var report *pb.BlockRead
	err := l.persist(ctx, fmt.Sprintf("block %d of source %d", r.id.seq, r.id.source), func() error {
		return l.cache.use(ctx, r, func(b content) (err error) {
			report, err = b.report(r.id)
			return err
		})
	})
	if errors.Is(err, errReleased) {
		return nil
	}
	if err != nil {
		return l.failBlock(ctx, gone(err), r.id)
	}
	failpoint.Hit(failpoint.ReadAfter)
	return l.tellBlock(r.id, report)
}

// task is something for a worker: what run does or, without it, a block to be read.
type task struct {
	run      func(context.Context) error
	block    blockID
	released atomic.Bool // the block is not to be read any more
}

// queue holds the tasks that are not done, in the order they were asked for. It is safe for
// concurrent use.
type queue struct {
	mu    sync.Mutex        // guards the fields below
	added *sync.Cond        // of mu: there is one more that waits
	waits []*task           // for a worker
	reads map[blockID]*task // of waits
	begun map[*task]bool
}

func newQueue() *queue {
	q := &queue{reads: map[blockID]*task{}, begun: map[*task]bool{}}
	q.added = sync.NewCond(&q.mu)
	return q
}

// read adds a block, unless it waits already.
func (q *queue) read(id blockID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.reads[id] == nil {
		t := &task{block: id}
		q.reads[id] = t
		q.waits = append(q.waits, t)
		q.added.Signal()
	}
}

// do adds something else to be done.
func (q *queue) do(run func(context.Context) error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waits = append(q.waits, &task{run: run})
	q.added.Signal()
}

// release takes out the blocks of some sources that are before a seq, by source. A worker
// that took one of them learns of it.
func (q *queue) release(before map[uint32]uint64) {
	over := func(t *task) bool { return t.run == nil && t.block.seq < before[t.block.source] }
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waits = slices.DeleteFunc(q.waits, over)
	maps.DeleteFunc(q.reads, func(_ blockID, t *task) bool { return over(t) })
	for t := range q.begun {
		if over(t) {
			t.released.Store(true)
		}
	}
}

// next waits for a task and takes it; done must be called with it. Its error is that of ctx.
func (q *queue) next(ctx context.Context) (*task, error) {
	defer context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.added.Broadcast()
	})()
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waits) == 0 && ctx.Err() == nil {
		q.added.Wait()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t := q.waits[0]
	q.waits[0] = nil
	q.waits = q.waits[1:]
	if t.run == nil {
		delete(q.reads, t.block)
	}
	q.begun[t] = true
	return t, nil
}

// done forgets a task that was taken.
func (q *queue) done(t *task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.begun, t)
}
