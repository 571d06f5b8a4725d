package sourceloader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

func readOrder(id blockID) *pb.LoaderOrder {
	return &pb.LoaderOrder{Order: &pb.LoaderOrder_Read{Read: &pb.ReadBlock{Source: id.source, Seq: id.seq}}}
}

func releaseOrder(source uint32, before uint64) *pb.LoaderOrder {
	return &pb.LoaderOrder{Order: &pb.LoaderOrder_Release{Release: &pb.ReleaseBlocks{Source: []uint32{source}, Before: []uint64{before}}}}
}

// ordered runs a loader that takes in what order gives it, until the function it returns is
// called. That one fails the test if a worker is stuck.
func ordered(t *testing.T, l *Loader) (order func(*pb.LoaderOrder), end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	orders, ended := make(chan *pb.LoaderOrder), make(chan error, 1)
	taken := make(chan struct{})
	go func() {
		ended <- l.serve(ctx, func(ctx context.Context, take func(*pb.LoaderOrder) error) error {
			for {
				select {
				case o := <-orders:
					if err := take(o); err != nil {
						return err
					}
					taken <- struct{}{}
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
	}()
	order = func(o *pb.LoaderOrder) {
		t.Helper()
		select {
		case orders <- o:
			<-taken
		case <-time.After(time.Minute):
			t.Fatalf("%v is not taken in", o)
		}
	}
	return order, func() {
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("a worker is stuck")
		}
	}
}

// gated is a store whose files cannot be read while it is shut.
type gated struct {
	store.Store
	shut  *atomic.Bool
	waits chan struct{} // has one for each read that waits
	open  chan struct{}
}

func (g gated) Open(ctx context.Context, obj store.Object) (store.Handle, error) {
	h, err := g.Store.Open(ctx, obj)
	return gatedHandle{h, g, ctx}, err
}

type gatedHandle struct {
	store.Handle
	gated
	life context.Context
}

func (h gatedHandle) ReadAt(p []byte, off int64) (int, error) {
	if h.shut.Load() {
		h.waits <- struct{}{}
		select {
		case <-h.open:
		case <-h.life.Done():
			return 0, h.life.Err()
		}
	}
	return h.Handle.ReadAt(p, off)
}

// TestReleaseWhileWorkersAreBlocked: with all workers in a store that does not answer, a
// release frees memory at once, and the workers for blocks that are wanted.
func TestReleaseWhileWorkersAreBlocked(t *testing.T) {
	l := loaderOf(t, "    chunk_bytes: 200\n    shuffle: false", 100)
	g := gated{l.store.Store, new(atomic.Bool), make(chan struct{}, 100), make(chan struct{})}
	l.store = store.NewMetered(g)
	l.opts.Workers, l.queue, l.opens = 2, newQueue(), newQueue()
	heard(t, l)
	reports := make(chan uint64, 100)
	l.send = func(r *pb.LoaderReport) error {
		if b := r.GetBlock(); b != nil {
			reports <- b.Seq
		} else if r.GetUsage() == nil {
			t.Errorf("the planner hears %v", r)
		}
		return nil
	}
	order, end := ordered(t, l)
	order(readOrder(blockID{0, 0}))
	if seq := <-reports; seq != 0 {
		t.Fatalf("block %d came first", seq)
	}
	src, err := l.source(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	opens := l.store.Meter().Opens
	for _, seq := range []int64{1, 2, 4} {
		if _, err := src.Read(t.Context(), l.store, src.Chain.Worker(), seq, Bans{}); err != nil {
			t.Fatal(err)
		}
	}
	opens = 2*l.store.Meter().Opens - opens // after these three once more
	g.shut.Store(true)
	for seq := range uint64(4) {
		order(readOrder(blockID{0, seq + 1}))
	}
	<-g.waits
	<-g.waits // both workers are blocked: in blocks 1 and 2
	order(releaseOrder(0, 4))
	l.cache.mu.Lock()
	if l.cache.entries[blockID{0, 0}] != nil {
		t.Error("a block that was released is held")
	}
	l.cache.mu.Unlock()
	<-g.waits // a worker got to block 4
	close(g.open)
	if seq := <-reports; seq != 4 {
		t.Errorf("block %d was read, which was released", seq)
	}
	if n := l.store.Meter().Opens; n > opens {
		t.Errorf("files were opened %d times, want at most %d: block 3 was read, too", n, opens)
	}
	end()
	if len(reports) > 0 {
		t.Errorf("block %d was read, too", <-reports)
	}
}

// TestQueue: blocks are read in the order they were asked for, each once however often it
// was asked for; what is released is taken out, and asked for after that it is read.
func TestQueue(t *testing.T) {
	q := newQueue()
	for _, seq := range []uint64{5, 3, 5, 9, 3, 7} {
		q.read(blockID{0, seq})
	}
	q.read(blockID{1, 2})
	ran := false
	q.do(func(context.Context) error { ran = true; return nil })
	next := func(want blockID) *task {
		t.Helper()
		got, err := q.next(t.Context())
		if err != nil || got.run != nil || got.block != want {
			t.Fatalf("%v comes, want %v: %v", got, want, err)
		}
		return got
	}
	first := next(blockID{0, 5})
	next(blockID{0, 3})
	q.release(map[uint32]uint64{0: 8})
	q.read(blockID{0, 5})
	if !first.released.Load() {
		t.Error("a worker does not learn that its block was released")
	}
	q.done(first)
	next(blockID{0, 9})
	next(blockID{1, 2})
	if got, err := q.next(t.Context()); err != nil || got.run(t.Context()) != nil || !ran {
		t.Errorf("%v comes: %v", got, err)
	}
	if again := next(blockID{0, 5}); again.released.Load() {
		t.Error("a block that is asked for after its release is not read")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.next(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a worker that is to stop: %v", err)
	}
}

// world is a planner that gives random orders, and what is known of what it asked for.
type world struct {
	t     *testing.T
	l     *Loader
	src   *Source
	bytes int64 // that may be held

	mu       sync.Mutex
	asked    map[blockID]bool // not reported yet
	late     map[blockID]int  // reports that may come of what is not wanted any more
	readable map[blockID]bool
	fetched  map[blockID]int // fetches under way
	reported []blockID
}

func (w *world) samples(id blockID) []*transform.Sample {
	return samplesOf(rand.New(rand.NewPCG(uint64(id.source), id.seq)), w.src, 40)
}

// load reads a block, slowly.
func (w *world) load(ctx context.Context, win *window) (content, error) {
	w.mu.Lock()
	if ctx.Err() == nil && !w.readable[win.id] && w.fetched[win.id] == 0 {
		w.t.Errorf("block %v is read, which was released", win.id)
	}
	w.mu.Unlock()
	rng := rand.New(rand.NewPCG(win.id.seq, 1))
	r := w.src.reading(nil, win)
	for _, s := range w.samples(win.id) {
		if rng.IntN(8) == 0 {
			select {
			case <-time.After(time.Duration(rng.IntN(100)) * time.Millisecond):
			case <-ctx.Done():
				win.discard()
				return nil, ctx.Err()
			}
		}
		if err := r.sample(s); err != nil {
			return nil, err
		}
		w.checkMemory()
	}
	r.endChunk(0, []order.Unit{{}})
	r.block.sum = r.sums.block.Sum()
	return r.end(Bans{})
}

func (w *world) checkMemory() {
	if held, _, _ := w.l.cache.usage(); held > w.bytes {
		w.t.Errorf("%d bytes are held, of %d", held, w.bytes)
	}
}

// hear takes in a report.
func (w *world) hear(r *pb.LoaderReport) error {
	b := r.GetBlock()
	if b == nil {
		if f := r.GetFailure(); f != nil {
			w.t.Errorf("the loader failed: %v", f)
		}
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	id := blockID{b.Source, b.Seq}
	switch {
	case w.asked[id]:
		delete(w.asked, id)
		w.reported = append(w.reported, id)
	case w.late[id] > 0:
		w.late[id]--
	default:
		w.t.Errorf("block %v is reported, and was not asked for", id)
	}
	return nil
}

// forget says that the blocks that were asked for and are as given are not wanted.
func (w *world) forget(of func(blockID) bool) {
	for id := range w.asked {
		if of(id) {
			delete(w.asked, id)
			w.late[id]++
		}
	}
}

// fetch is a constructor that asks for a block.
func (w *world) fetch(id blockID, rng *rand.Rand) {
	want := whole(w.src, id, w.samples(id), Bans{})
	ask := askOf(rng, want)
	w.mu.Lock()
	w.fetched[id]++
	w.mu.Unlock()
	if err := w.l.cache.use(w.t.Context(), request{id: id}, func(b content) error { return answers(w.t, ask, want, b) }); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	w.fetched[id]--
	w.mu.Unlock()
}

// drive gives some random orders: each block is asked for once until it is read or released,
// floors rise, and now and then the job goes on from an earlier position.
func (w *world) drive(rng *rand.Rand, order func(*pb.LoaderOrder), fetches *errgroup.Group) {
	var floors [3]uint64
	for range 120 {
		begin, source := time.Now(), rng.Uint32N(3)
		floor := &floors[source]
		w.mu.Lock()
		switch k := rng.IntN(20); {
		case k < 12:
			if id := (blockID{source, *floor + rng.Uint64N(6)}); !w.asked[id] {
				w.asked[id], w.readable[id] = true, true
				order(readOrder(id))
			}
		case k < 15:
			*floor += rng.Uint64N(4)
			order(releaseOrder(source, *floor))
			below := func(id blockID) bool { return id.source == source && id.seq < *floor }
			w.forget(below)
			maps.DeleteFunc(w.readable, func(id blockID, _ bool) bool { return below(id) })
		case k == 15:
			*floor -= rng.Uint64N(*floor + 1)
			w.forget(func(id blockID) bool { return id.source == source })
		case k < 18 && len(w.reported) > 0:
			id, seed := w.reported[rng.IntN(len(w.reported))], rng.Uint64()
			fetches.TryGo(func() error { w.fetch(id, rand.New(rand.NewPCG(seed, 2))); return nil })
		}
		w.mu.Unlock()
		if waited := time.Since(begin); waited > 0 {
			w.t.Errorf("an order waited for %v", waited)
		}
		time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
	}
}

// TestRandomOrders: whatever is asked for and released, in which order and how slowly files
// are read: nothing is read that was released before, each block that is wanted is reported
// once, memory stays within its budget, no order waits, and no worker is stuck in the end.
func TestRandomOrders(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const fetchers = 2
				rng := rand.New(rand.NewPCG(seed, 5))
				l := &Loader{store: store.NewMetered(nil), queue: newQueue(), opens: newQueue(), ready: make(chan struct{})}
				l.life, l.end = context.WithCancel(t.Context())
				l.opts.Workers, l.opts.Log = 1+rng.IntN(4), slog.New(slog.DiscardHandler)
				w := &world{t: t, l: l, src: sourceOf(rng), asked: map[blockID]bool{}, late: map[blockID]int{}, readable: map[blockID]bool{}, fetched: map[blockID]int{}}
				l.cache = newCache(t.Context(), 200e3+rng.Int64N(2)*2e6, diskOf(t, 1<<30), w.load)
				const sample = 180e3 // more than any takes
				w.bytes = l.cache.budget + int64(l.opts.Workers+fetchers)*(2*l.cache.window+sample)
				l.send = w.hear
				close(l.ready)
				order, end := ordered(t, l)
				var fetches errgroup.Group
				fetches.SetLimit(fetchers)
				w.drive(rng, order, &fetches)
				time.Sleep(time.Hour)
				fetches.Wait()
				w.mu.Lock()
				if len(w.asked) > 0 {
					t.Errorf("not reported: %v", w.asked)
				}
				w.mu.Unlock()
				end()
				l.close()
				if used, _, problem := l.cache.disk.Usage(); used != 0 || l.cache.held != 0 || l.cache.leaving != 0 || problem != "" {
					t.Errorf("in the end %d bytes are on the disk, %d in memory; problem %q", used, l.cache.held, problem)
				}
			})
		})
	}
}
