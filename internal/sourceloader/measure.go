package sourceloader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/profile"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// measuredChunks is from how many chunks the records of a measurement come, if these have enough: files of a
// source differ, and to begin a chunk costs more than what is measured.
const measuredChunks = 8

// Measure reads about n records of the source, the first ones of the chunks that come first in its order, and
// returns what they cost: the same records for the same job, whoever measures. The recipe is left to who has the job's spec. A record that cannot
// be used is the error of a loader that reads it, or is left out, as the source's policy has it: then it costs its time and gives no sample.
// It keeps its thread until it returns, and may run beside others.
func (s *Source) Measure(ctx context.Context, st store.Store, n int64) (*profile.Source, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m := &measuring{source: s, store: &timedStore{Store: st}, stages: stagesOf(s.Chain.Segments()), worker: s.Chain.Worker(), left: n}
	m.worker.Watch(m.clock.step)
	m.found.Stages = []profile.Stage{{Name: openStage}, {Name: readStage}, {Name: decodeStage}}
	before, each := threadTime(), max(min(s.Order.Layout.Chunks(), measuredChunks), 1)
	for seq := range s.Order.Blocks() {
		for _, chunk := range s.Order.Chunks(seq) {
			if err := m.chunk(ctx, chunk, min((n+each-1)/each, m.left)); err != nil {
				return nil, fault.As(fault.ClassOf(err), fmt.Errorf("source %q: %w", s.Spec.Name, err))
			}
			if m.left == 0 {
				return m.end(threadTime() - before), nil
			}
		}
	}
	return m.end(threadTime() - before), nil
}

// measuring is a measurement under way.
type measuring struct {
	source *Source
	store  *timedStore
	stages []stage
	worker *transform.Worker
	file   int // that is read
	found  profile.Source
	clock  stepClock
	left   int64         // records that may be read yet
	bytes  int64         // that the samples take in a block
	others time.Duration // for which functions computed in other processes, as far as they are waited for
}

// end is what was found.
func (m *measuring) end(cpu time.Duration) *profile.Source {
	f, s := &m.found, m.source
	f.Name, f.Blocks = s.Spec.Name, s.Order.Blocks()
	f.Bytes = m.store.bytes.Load()
	for _, st := range m.clock.stages.Stages {
		f.Stage(st)
	}
	for _, st := range f.Stages {
		f.Seconds += st.Seconds
	}
	if cpu > 0 {
		f.CPU = min((cpu + m.others).Seconds(), f.Seconds) // what measuring takes is no part of it
	}
	if f.Bytes > 0 {
		whole := float64(s.Manifest.Bytes()) / float64(max(s.Order.Blocks(), 1)) // bytes of files for a block
		f.BlockBytes = int64(whole * float64(m.bytes) / float64(f.Bytes))
	}
	return f
}

// chunk reads at most n records of a chunk.
func (m *measuring) chunk(ctx context.Context, chunk, n int64) error {
	for _, unit := range m.source.Order.Layout.Units(chunk) {
		before := m.left
		if err := m.unit(ctx, unit, n); err != nil {
			return err
		}
		if n -= before - m.left; n <= 0 {
			return nil
		}
	}
	return nil
}

func (m *measuring) unit(ctx context.Context, unit order.Unit, n int64) error {
	began := time.Now()
	m.file = unit.File
	r, err := m.source.OpenUnit(ctx, m.store, unit, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	m.found.Stages[0].Seconds += time.Since(began).Seconds()
	ctx, batch := format.WithFile(ctx, unit.File), &format.Batch{}
	for ; n > 0; n-- {
		rec, err := m.next(r)
		if err == io.EOF {
			break
		}
		if err == nil {
			err = m.record(ctx, rec, batch)
		}
		if err != nil {
			return err
		}
		m.left--
	}
	return m.batch(ctx, batch)
}

// next reads a record, and tells apart the store's time and the decoder's.
func (m *measuring) next(r format.Reader) (*format.Record, error) {
	began, inStore, bytes := time.Now(), m.store.took.Load(), m.store.bytes.Load()
	rec, err := r.Next()
	took, read := time.Since(began), time.Duration(m.store.took.Load()-inStore)
	m.found.Stages[1].Seconds += min(read, took).Seconds()
	m.found.Stages[1].Bytes += m.store.bytes.Load() - bytes
	m.found.Stages[2].Seconds += max(took-read, 0).Seconds()
	if err != nil {
		return nil, err
	}
	if m.found.Records++; rec.Err == nil {
		for i := range rec.Values {
			m.found.Stages[2].Bytes += int64(len(rec.Values[i].Bytes) + 4*len(rec.Values[i].Tokens))
		}
	}
	return rec, nil
}

// record puts a record through the chain, or through its first part.
func (m *measuring) record(ctx context.Context, rec *format.Record, batch *format.Batch) error {
	m.clock.at = time.Now()
	if len(m.stages) > 1 {
		_, err := m.worker.Begin(rec, batch)
		return err
	}
	given := m.bytes
	_, err := m.worker.Apply(ctx, rec, m.sample)
	m.clock.step(samplesStage, int(m.bytes-given))
	if err != nil {
		return m.refuse(rec, err)
	}
	return nil
}

// refuse leaves a bad record out, if the policy allows that.
func (m *measuring) refuse(rec *format.Record, err error) error {
	err = inFile(m.source.Manifest.Files[m.file].URI, m.source.Format, rec, err)
	if !transform.Skips(m.source.Spec, err) {
		return transform.Stops(m.source.Spec, err)
	}
	m.found.Skipped++
	return nil
}

// batch puts what the first stage gave through the others.
func (m *measuring) batch(ctx context.Context, batch *format.Batch) error {
	if len(m.stages) == 1 || batch.Len() == 0 {
		return nil
	}
	for _, st := range m.stages[1 : len(m.stages)-1] {
		m.clock.at = time.Now()
		thread := threadTime()
		m.worker.Watch(nil) // its native steps only hand records on, or are timed as one
		for _, k := range st.segments {
			var err error
			if batch, _, err = m.worker.Pass(ctx, k, batch); err != nil {
				return inFile(m.source.Manifest.Files[m.file].URI, m.source.Format, &format.Record{}, err)
			}
		}
		m.worker.Watch(m.clock.step)
		if st.function != nil && st.function.Operator != callOperator { // a model server is waited for, as the store is
			m.others += time.Since(m.clock.at) - (threadTime() - thread)
		}
		m.clock.step(st.name, int(batch.Bytes()))
	}
	m.clock.at = time.Now()
	given := m.bytes
	_, err := m.worker.End(batch, m.sample, m.refuse)
	m.clock.step(samplesStage, int(m.bytes-given))
	return err
}

func (m *measuring) sample(s *transform.Sample) error {
	bytes, images := sampleBytes(s)
	m.found.Samples++
	m.found.Tokens += int64(len(s.Tokens))
	m.bytes += bytes + images + placeBytes
	return nil
}

// timedStore counts the time of reads and opens, and the bytes of reads. It is for one measurement.
type timedStore struct {
	store.Store
	took, bytes atomic.Int64 // ns; bytes
}

// Open implements store.Store.
func (t *timedStore) Open(ctx context.Context, obj store.Object) (store.Handle, error) {
	began := time.Now()
	h, err := t.Store.Open(ctx, obj)
	t.took.Add(int64(time.Since(began)))
	if err != nil {
		return nil, err
	}
	return &timedHandle{h, t}, nil
}

type timedHandle struct {
	store.Handle
	of *timedStore
}

func (h *timedHandle) ReadAt(p []byte, off int64) (int, error) {
	began := time.Now()
	n, err := h.Handle.ReadAt(p, off)
	h.of.took.Add(int64(time.Since(began)))
	h.of.bytes.Add(int64(n))
	return n, err
}

// OpenMemory opens source i of a job twice and returns it, with about what an open source takes in memory
// (its files and chain, without what sources share) and what a reader of one of its units takes beside it. It
// looks at the whole heap, so nothing else may allocate meanwhile.
func OpenMemory(ctx context.Context, st store.Store, job *jobspec.Job, i int, shared *transform.Shared) (s *Source, state, reader int64, err error) {
	first, err := Open(ctx, st, job, i, shared)
	if err != nil {
		return nil, 0, 0, err
	}
	before := heapNow()
	if s, err = Open(ctx, st, job, i, shared); err != nil {
		return nil, 0, 0, err
	}
	opened := heapNow()
	if s.Order.Layout.Chunks() == 0 {
		return s, max(opened-before, 0), 0, nil
	}
	r, err := s.OpenUnit(ctx, st, s.Order.Layout.Units(s.Order.Chunks(0)[0])[0], 0)
	if err != nil {
		return nil, 0, 0, fault.As(fault.ClassOf(err), fmt.Errorf("source %q: %w", s.Spec.Name, err))
	}
	_, err = r.Next()
	reads := heapNow()
	runtime.KeepAlive(first)
	r.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, 0, fault.As(fault.ClassOf(err), fmt.Errorf("source %q: %w", s.Spec.Name, err))
	}
	return s, max(opened-before, 0), max(reads-opened, 0), nil
}

// heapNow is what is in use of the heap.
func heapNow() int64 {
	runtime.GC()
	runtime.GC() // what has a finalizer goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
