package sourceloader

import (
	"context"
	"sync"
	"time"

	"github.com/millrace-data/millrace/internal/profile"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// What reading costs is counted while blocks are read: their time as a whole, and of one record in
// timedRecords how it divides into steps: two looks at the clock a block and a dozen for 64 records.
const timedRecords = 64

// The stages beside the steps of a chain.
const (
	openStage    = "open"            // of a unit: what is read before its first record
	readStage    = "read"            // of the store; in a loader, all that comes before the first step
	decodeStage  = "decode"          // decompressing and decoding
	samplesStage = profile.LastStage // after the last step: splitting, and what the block keeps
)

// costs are what reading a source has cost since they were taken last. They are safe for concurrent
// use, and nil counts nothing.
type costs struct {
	mu    sync.Mutex
	since profile.Profile // of one source without a name; none: nothing was read
}

func (c *costs) add(s profile.Source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since.Add(s)
}

// stage counts the time of a stage, and what it gave.
func (c *costs) stage(name string, took time.Duration, bytes int64) {
	if c == nil {
		return
	}
	seconds := max(took, 0).Seconds()
	c.add(profile.Source{Seconds: seconds, Stages: []profile.Stage{{Name: name, Seconds: seconds, Bytes: bytes}}})
}

// take returns what was counted; nil if that is nothing.
func (c *costs) take() *profile.Source {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.since.Sources) == 0 {
		return nil
	}
	s := c.since.Sources[0]
	c.since.Sources = nil
	return &s
}

// begin begins to count what reading a block costs.
func (c *costs) begin() *timing {
	if c == nil {
		return nil
	}
	return &timing{costs: c, began: time.Now()}
}

// timing is what one reading of a block costs. It is for one goroutine, and nil counts nothing.
type timing struct {
	costs  *costs
	began  time.Time
	store  *timedStore
	tokens int64
	clock  stepClock
	count  int64 // records that were applied
	timed  int64
}

// watch times what the store takes.
func (t *timing) watch(st store.Store) store.Store {
	if t == nil {
		return st
	}
	t.store = &timedStore{Store: st}
	return t.store
}

// stepClock times the steps of records.
type stepClock struct {
	at     time.Time // the end of the last step
	stages profile.Source
}

func (c *stepClock) step(name string, bytes int) {
	now := time.Now()
	c.stages.Stage(profile.Stage{Name: name, Seconds: now.Sub(c.at).Seconds(), Bytes: int64(bytes)})
	c.at = now
}

// apply puts a record through the chain, and times the steps of some.
func (t *timing) apply(ctx context.Context, r *reading, rec *format.Record) (transform.Outcome, error) {
	if t == nil {
		return r.worker.Apply(ctx, rec, r.sample)
	}
	if t.count++; t.count%timedRecords != 1 {
		return r.worker.Apply(ctx, rec, r.sample)
	}
	t.timed++
	r.worker.Watch(t.clock.step)
	t.clock.at = time.Now()
	outcome, err := r.worker.Apply(ctx, rec, r.sample)
	t.clock.step(samplesStage, 0)
	r.worker.Watch(nil)
	return outcome, err
}

// sample counts a sample.
func (t *timing) sample(s *transform.Sample) {
	if t != nil {
		t.tokens += int64(len(s.Tokens))
	}
}

// end counts a reading that came to its end.
func (t *timing) end(r *reading, seq int64, err error) {
	if t == nil || err != nil {
		return
	}
	s := profile.Source{Records: int64(r.block.Records), Samples: int64(len(r.places)), Tokens: t.tokens, Bytes: r.fileBytes(seq)}
	if r.source.flow == nil {
		s.Seconds = time.Since(t.began).Seconds()
		s.CPU = max(s.Seconds-time.Duration(t.store.took.Load()).Seconds(), 0)
		s.Stages = t.stages(s.Seconds)
	} // else its stages were counted one by one
	t.costs.add(s)
}

// stages divides the time of a block by the records that were timed. What is left is reading.
func (t *timing) stages(seconds float64) []profile.Stage {
	scale, steps := float64(t.count)/float64(max(t.timed, 1)), 0.0
	for _, st := range t.clock.stages.Stages {
		steps += st.Seconds * scale
	}
	less := min(seconds/max(steps, 1e-12), 1) // the records that were timed may be the long ones
	stages := []profile.Stage{{Name: readStage, Seconds: seconds - steps*less}}
	for _, st := range t.clock.stages.Stages {
		stages = append(stages, profile.Stage{Name: st.Name, Seconds: st.Seconds * scale * less, Bytes: int64(float64(st.Bytes) * scale)})
	}
	return stages
}

// fileBytes is about how many bytes of files a block is read from.
func (r *reading) fileBytes(seq int64) (n int64) {
	for _, chunk := range r.numbers(seq) {
		for _, u := range r.source.Order.Layout.Units(chunk) {
			file := &r.source.Manifest.Files[u.File]
			n += file.Size / int64(max(file.Chunks, 1))
		}
	}
	return n
}

// takeCosts are those of all sources since the last report; none while nobody hears them.
func (l *Loader) takeCosts() (all []*pb.SourceCosts) {
	if l.session.Load() == nil {
		return nil
	}
	l.mu.Lock()
	sources := l.sources
	l.mu.Unlock()
	for i, lazy := range sources {
		s := lazy.costs.take()
		if s == nil {
			continue
		}
		x := &pb.SourceCosts{
			Source: uint32(i), Records: uint64(s.Records), Samples: uint64(s.Samples), Tokens: uint64(s.Tokens), Bytes: uint64(s.Bytes),
			Seconds: s.Seconds, Computed: s.CPU, BlockBytes: uint64(l.cache.sizeOf(uint32(i))),
		}
		for _, st := range s.Stages {
			x.Stages = append(x.Stages, &pb.StageCosts{Name: st.Name, Seconds: st.Seconds, Bytes: uint64(st.Bytes)})
		}
		all = append(all, x)
	}
	return all
}

// sizeOf is what the last block of a source took; 0 if none was read.
func (c *cache) sizeOf(source uint32) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sizes[source]
}
