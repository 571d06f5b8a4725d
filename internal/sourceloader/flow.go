package sourceloader

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace-data/millrace/internal/engine"
	"github.com/millrace-data/millrace/internal/engine/schedule"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/memory"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// A chain with functions is executed by the engine: the chunks of a block are its source tasks, which read
// records and put them through the first segment in batches; each function is a stage; and who
// reads the block takes the batches in the order of the files, and makes samples of them, as it
// would of records. So a block is the same whatever was worked on at the same time, and whatever
// had to be done again.

// executor is the engine of a loader, for all its sources.
type executor struct {
	*engine.Executor
	cache *cache
	share int64 // bytes of the cache's budget that the engine may use
	over  chan struct{}
	calls calls
	mu    sync.Mutex // guards the fields below
	runs  int        // blocks that are read by it now
	pools []pool
	flows []*flow // of the sources that are open, by name
}

const (
	// engineShare is the part of a loader's memory that the engine may use while it works: the blocks
	// that it fills take most of the rest.
	engineShare = 4
	// leastEngine is what it may use whatever the budget: a few records.
	leastEngine = 64 << 10
	// inFlight is how many batches of functions that name no pool of their own may be on their way
	// for each block that is read at a time.
	inFlight = 2
	// mostBatches is how many batches the engine's share has to hold, at the least: some for each stage.
	mostBatches = 32
	// leastBatch is the target of batches, at the least: less would be more calls than work.
	leastBatch = 4 << 10
	// mergeRatio is how many bytes a call takes for each of its input, in thousandths: what it gives, and a
	// copy of the input where that is small partitions that are put together.
	mergeRatio = 2000
)

// The resources of the engine.
const (
	cpuSlots    = "cpu"
	pythonSlots = "python"
)

// newExecutor is an engine with a share of a cache's budget, which runs until ctx ends.
func newExecutor(ctx context.Context, c *cache, workers int) (*executor, error) {
	x := &executor{cache: c, share: shareOf(c.budget), over: make(chan struct{})}
	slots := schedule.Amount(workers) * schedule.Slot
	var err error
	// Columns of a batch grow by an eighth more than they hold.
	opts := engine.Options{Limit: x.share - x.share/8, Slots: map[string]schedule.Amount{cpuSlots: slots, pythonSlots: inFlight * slots}}
	if c.batchDisk != nil {
		opts.Spill = batchSpill{c.batchDisk}
	}
	x.Executor, err = engine.New(opts)
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(x.over)
		var watch sync.WaitGroup
		watch.Go(func() { x.watchHeaps(ctx) })
		_ = x.Run(ctx) // it ends with ctx, and with no other error
		watch.Wait()
	}()
	return x, nil
}

// enter counts the engine's share as long as a block is read by it: until leave is called.
func (x *executor) enter() (leave func()) {
	x.mu.Lock()
	x.runs++
	first := x.runs == 1
	x.mu.Unlock()
	if first {
		x.cache.grow(x.share, 0, anywhere)
	}
	return func() {
		x.mu.Lock()
		x.runs--
		last := x.runs == 0
		x.mu.Unlock()
		if last {
			x.cache.count(-x.share)
		}
	}
}

// flow is a source in the engine.
type flow struct {
	*executor
	source   *Source
	pipeline *engine.Pipeline
	parts    bool // a record may become several
	asks     []transform.Awaiting
	workers  sync.Pool // of *transform.Worker
}

// flow returns that of a source, nil if its chain has no function.
func (x *executor) flow(s *Source) (*flow, error) {
	segments := s.Chain.Segments()
	if len(segments) == 1 {
		return nil, nil
	}
	f := &flow{executor: x, source: s}
	cpu := map[string]schedule.Amount{cpuSlots: schedule.Slot}
	target := partitionTarget(s.Spec.Transforms, x.share)
	var err error
	stages := []engine.Stage{{Name: "read", Needs: cpu, Partition: target}}
	parts := stagesOf(segments)
	for _, part := range parts[1 : len(parts)-1] {
		st := engine.Stage{Name: part.name, Needs: cpu, Partition: target, Keeps: true}
		if part.function != nil {
			if st.Needs, err = x.slotsOf(part.function.Pool); err != nil {
				return nil, err
			}
			if asks, ok := part.function.Caller.(transform.Awaiting); ok {
				f.asks = append(f.asks, asks)
			}
			f.parts = f.parts || part.function.Kind == transform.FlatMapFunction
			st.Merge, st.Ratio = target, mergeRatio
		}
		grows := &growth{}
		st.Process = func(ctx context.Context, in []engine.Partition, out *engine.Output) error {
			return f.pass(ctx, in, out, part, grows)
		}
		stages = append(stages, st)
	}
	if f.pipeline, err = x.Pipeline(stages); err == nil {
		x.note(f)
	}
	return f, err
}

// slotsOf are what a call of a function needs: a slot of its pool, which counts from the first such call on.
func (x *executor) slotsOf(p transform.Pool) (map[string]schedule.Amount, error) {
	if p.Name == "" {
		return map[string]schedule.Amount{pythonSlots: schedule.Slot}, nil
	}
	err := x.Provide(x.cache.base, p.Name, schedule.Amount(max(p.Slots, 1))*schedule.Slot)
	x.uses(p)
	return map[string]schedule.Amount{p.Name: takes(p)}, err
}

// takes are the slots of a call, at most all of the pool's.
func takes(p transform.Pool) schedule.Amount {
	return schedule.Amount(min(cmp.Or(p.Takes, 1), float64(max(p.Slots, 1))) * float64(schedule.Slot))
}

// worker takes a worker of the source's chain; it goes back into workers.
func (f *flow) worker() *transform.Worker {
	if w, ok := f.workers.Get().(*transform.Worker); ok {
		return w
	}
	return f.source.Chain.Worker()
}

// unitReader reads the units of a chunk into batches.
type unitReader struct {
	*flow
	window *window
	worker *transform.Worker
	out    *engine.Output
	open   *rows
	given  int64         // bytes of batches
	waited time.Duration // for room
}

// read is a source task: a chunk. An error of the data is given on like a batch, since it counts only
// if nothing before it ends the reading.
func (f *flow) read(ctx context.Context, st store.Store, w *window, units []order.Unit, out *engine.Output) error {
	u := &unitReader{flow: f, window: w, worker: f.worker(), out: out}
	defer f.workers.Put(u.worker)
	began := time.Now()
	defer func() { f.source.costs.stage("read", time.Since(began)-u.waited, u.given) }()
	for _, unit := range units {
		w.reads(&f.source.Manifest.Files[unit.File].URI)
		u.open = &rows{Batch: &format.Batch{}, file: unit.File}
		failed := u.unit(ctx, st, unit)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := u.flush(); err != nil {
			return err
		}
		if failed != nil {
			return out.Emit(&rows{Batch: &format.Batch{}, file: unit.File, err: failed})
		}
	}
	return nil
}

func (u *unitReader) unit(ctx context.Context, st store.Store, unit order.Unit) error {
	r, err := u.source.OpenUnit(ctx, st, unit, 0)
	if err != nil {
		return err
	}
	r = u.window.counting(r)
	defer r.Close()
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = u.record(rec)
		}
		if err != nil {
			return err
		}
	}
}

// record adds a record to the open batch, and gives that away when it is large enough.
func (u *unitReader) record(rec *format.Record) error {
	u.window.worked()
	u.open.count(u.source, rec)
	if _, err := u.worker.Begin(rec, u.open.Batch); err != nil {
		return err
	}
	if bytes := u.open.Bytes(); bytes < u.out.Target() {
		defer u.waits(time.Now())
		return u.out.Reserve(bytes)
	}
	file := u.open.file
	if err := u.flush(); err != nil {
		return err
	}
	u.open = &rows{Batch: &format.Batch{}, file: file}
	return nil
}

func (u *unitReader) flush() error {
	if u.open.records == 0 {
		return nil
	}
	u.given += u.open.Bytes()
	defer u.waits(time.Now())
	return u.out.Emit(u.open)
}

// waits counts the time since, in which the reader may have waited for room.
func (u *unitReader) waits(since time.Time) { u.waited += time.Since(since) }

// paceMemory is how many releases the pace of a source looks back on.
const paceMemory = 32

// move moves floors, and learns from it how fast sources are consumed: for each, thousandths of a block that were let
// go of at a release, the last ones counting most. A job that begins somewhere has consumed nothing. The caller has mu.
func (c *cache) move(before map[uint32]uint64) {
	if c.paces == nil {
		c.paces = map[uint32]int64{}
	}
	for source, floor := range c.floors {
		moved := max(int64(before[source])-int64(floor), 0)
		c.paces[source] += (1000*moved - c.paces[source]) / paceMemory
	}
	maps.Copy(c.floors, before)
}

// turn is where a source is (blocks before it are not needed), and its weight among those that are consumed.
func (c *cache) turn(source uint32) (floor, weight int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(c.floors[source]), c.paces[source]
}

// stream reads the chunks of block seq through the engine.
func (r *reading) stream(ctx context.Context, st store.Store, seq int64) error {
	s, f := r.source, r.source.flow
	chunks := r.numbers(seq)
	units := make([][]order.Unit, len(chunks))
	work := engine.Work{Seq: seq}
	for i, chunk := range chunks {
		units[i] = s.Order.Layout.Units(chunk)
		source := engine.Source{Read: func(ctx context.Context, out *engine.Output) error { return f.read(ctx, st, r.window, units[i], out) }}
		for _, u := range units[i] {
			file := &s.Manifest.Files[u.File]
			source.Expect += file.Size / int64(max(file.Chunks, 1))
		}
		work.Sources = append(work.Sources, source)
	}
	ended := 0
	end := func(before int) {
		for ; ended < before; ended++ {
			r.endChunk(chunks[ended], units[ended])
		}
	}
	if r.window != nil {
		f.pipeline.Turn(f.cache.turn(r.window.id.source))
	}
	defer f.enter()()
	ctx = memory.With(ctx, f.cache.room)
	err := f.pipeline.Run(ctx, work, func(source int, part engine.Partition) error {
		end(source)
		began := time.Now()
		err := r.take(part.(*rows))
		s.costs.stage("samples", time.Since(began), 0)
		return err
	})
	if err != nil {
		return fault.As(fault.ClassOf(err), fmt.Errorf("source %q: %w", s.Spec.Name, err))
	}
	end(len(chunks))
	return nil
}

// take makes samples of records that come next in the order of the data.
func (r *reading) take(p *rows) error {
	r.file = p.file
	r.block.Records += p.good
	t := taking{reading: r, rows: p, left: p.records}
	var err error
	switch {
	case p.err != nil:
		return p.err
	case r.source.flow.parts:
		err = t.each()
	default:
		err = t.end(p.Batch)
	}
	if err != nil {
		return err
	}
	t.lacked(1<<63 - 1)
	r.block.Filtered += t.left // all others gave samples, or were counted
	return nil
}

// taking is what is known of rows while they become samples.
type taking struct {
	*reading
	*rows
	left uint64 // records of which nothing is known yet
}

// end makes samples of records of one part each.
func (t *taking) end(b *format.Batch) error {
	tally, err := t.worker.End(b, func(s *transform.Sample) error {
		if s.Piece == 0 {
			t.left--
		}
		return t.sample(s)
	}, t.refuse)
	t.left -= tally.TooLong + tally.Empty
	t.block.Dropped += tally.TooLong
	t.block.Empty += tally.Empty
	return err
}

// each makes samples of one record after the other, as a part that gives none does not count if another does.
func (t *taking) each() error {
	var rec format.Record
	for i := 0; i < t.Len(); {
		row, _ := t.Key(i)
		one := &format.Batch{}
		for ; i < t.Len(); i++ {
			if next, _ := t.Key(i); next != row {
				break
			}
			t.Record(i, &rec)
			one.Add(&rec)
		}
		before := t.left
		tally, err := t.worker.End(one, func(s *transform.Sample) error {
			t.left = before - 1
			return t.sample(s)
		}, t.refuse)
		if err != nil {
			return err
		}
		if t.left == before && tally.TooLong+tally.Empty > 0 {
			t.left--
			if tally.TooLong > 0 {
				t.block.Dropped++
			} else {
				t.block.Empty++
			}
		}
	}
	return nil
}

// refuse takes a bad record.
func (t *taking) refuse(rec *format.Record, err error) error {
	t.left--
	t.lacked(rec.Row)
	if column, ok := transform.AbsentColumn(err); ok {
		at := slices.IndexFunc(t.lacks, func(l lacking) bool { return l.row == rec.Row && l.column == column })
		if at >= 0 {
			t.addAbsent(Absent{t.source.Options.Columns[column], 1, t.lacks[at].hint})
		}
	}
	return t.skip(rec, err)
}

// addAbsent counts records that lack a column.
func (t *taking) addAbsent(more Absent) {
	b := t.block
	at := slices.IndexFunc(b.Absent, func(a Absent) bool { return a.Path == more.Path })
	if at < 0 {
		b.Absent = append(b.Absent, more)
		return
	}
	b.Absent[at].Records += more.Records
}

// lacked counts the columns that records up to a row are the first to lack.
func (t *taking) lacked(row int64) {
	n := 0
	for ; n < len(t.first) && t.first[n] <= row; n++ {
		t.addAbsent(t.rows.absent[n])
	}
	t.first, t.rows.absent = t.first[n:], t.rows.absent[n:]
}
