package sourceloader

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// A pass with several workers and a chain without functions reads a file in one goroutine, puts portions of its records
// through the chain in others, and takes what they became in the order of the file. So a compressed file, which only one
// can read, does not leave all other cores idle; and a pass is the same for any number of workers.

const (
	// portionBytes is how many bytes of records a portion has at the most, unless one record has more: some hundred documents. Each
	// worker has room for two.
	portionBytes = 128 << 10
	// portionMade is how many bytes a portion is to become, as far as can be told from those before it: text may become many times
	// as many tokens. Where there were none it has firstPortion of records.
	portionMade  = 1 << 20
	firstPortion = 8 << 10
)

// portion is some records of a file, and what became of them.
type portion struct {
	batch   *format.Batch
	samples transform.Copies // of all records
	results []result         // of each record
	room    int64            // bytes that are taken for it
	made    chan struct{}    // closed when the results are there
	err     error            // what ended the reading behind the portion before it, which is then all there is
}

// result is what became of a record.
type result struct {
	samples int
	outcome transform.Outcome
	err     error
}

// portionSize is how many bytes of records the next portion is to have.
func portionSize(grows *growth) int64 {
	if grows.most.Load() == 0 {
		return firstPortion
	}
	return portionBytes * portionMade / max(grows.expect(portionBytes), portionMade)
}

// unit reads a unit of the source, and takes what becomes of its records in their order.
func (r *reading) unit(ctx context.Context, st store.Store, unit order.Unit) error {
	ctx, stop := context.WithCancel(format.WithFile(ctx, unit.File))
	defer stop()
	reader, err := r.source.OpenUnit(ctx, st, unit, 0)
	if err != nil {
		return err
	}
	reader = r.window.counting(reader)
	if len(r.others) == 0 || r.block.hasImages { // these may borrow from the record
		return format.Each(reader, func(rec *format.Record) error { return r.record(ctx, rec) })
	}
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	workers := append(slices.Clone(r.others), r.worker)
	work, inOrder := make(chan *portion), make(chan *portion, 2*len(workers))
	most := 2 * portionBytes * int64(len(workers))
	room := semaphore.NewWeighted(most)
	group.Go(func() {
		defer reader.Close()
		defer close(inOrder)
		defer close(work)
		divide(ctx, reader, room, most, &r.grows, work, inOrder)
	})
	for _, w := range workers {
		group.Go(func() {
			for p := range work {
				p.make(ctx, w)
				r.grows.learn(p.batch.Bytes(), p.samples.Bytes())
			}
		})
	}
	for p := range inOrder {
		<-p.made
		if err := r.takePortion(p); err != nil {
			return err
		}
		room.Release(p.room)
	}
	return context.Cause(ctx)
}

// divide reads records into portions until the end of the file, its error, or that of ctx. One that takes all the room is
// alone: nothing behind it is read until it is taken.
func divide(ctx context.Context, reader format.Reader, room *semaphore.Weighted, most int64, grows *growth, work, inOrder chan<- *portion) {
	records := format.NewBatchReader(reader)
	for {
		p := &portion{made: make(chan struct{})}
		if p.batch, _, p.err = records.ReadBatch(portionSize(grows)); p.err != nil {
			close(p.made)
			if !errors.Is(p.err, io.EOF) {
				select {
				case inOrder <- p:
				case <-ctx.Done():
				}
			}
			return
		}
		p.room = min(p.batch.Bytes(), most)
		if room.Acquire(ctx, p.room) != nil {
			return
		}
		for _, to := range []chan<- *portion{inOrder, work} {
			select {
			case to <- p:
			case <-ctx.Done():
				close(p.made)
				return
			}
		}
		if p.room == most {
			if room.Acquire(ctx, most) != nil {
				return
			}
			room.Release(most)
		}
	}
}

// make puts the records through the chain of a worker.
func (p *portion) make(ctx context.Context, w *transform.Worker) {
	defer close(p.made)
	p.results = make([]result, p.batch.Len())
	var rec format.Record
	for i := range p.results {
		x := &p.results[i]
		p.batch.Record(i, &rec)
		x.outcome, x.err = w.Apply(ctx, &rec, func(s *transform.Sample) error {
			x.samples++
			p.samples.Add(s)
			return nil
		})
	}
}

// takePortion takes what became of records that come next in the order of the file.
func (r *reading) takePortion(p *portion) error {
	if p.err != nil {
		return p.err
	}
	var rec format.Record
	var s transform.Sample
	next := 0
	for i, x := range p.results {
		p.batch.Record(i, &rec)
		r.count(&rec)
		for end := next + x.samples; next < end; next++ {
			p.samples.Sample(next, &s)
			if err := r.sample(&s); err != nil {
				return err
			}
		}
		if x.err == nil {
			r.outcome(x.outcome)
		} else if err := r.bad(&rec, x.err); err != nil {
			return err
		}
	}
	return nil
}
