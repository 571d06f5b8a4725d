package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/millrace-data/millrace/internal/fault"
)

// Iter does the work and returns what it gives, as Run does, in order. An error comes last, with a nil partition. A
// partition counts as stored until the loop asks for what comes after it. A loop that ends early ends the run: when it has ended, so
// have its tasks.
func (p *Pipeline) Iter(ctx context.Context, w Work) iter.Seq2[Partition, error] {
	return func(yield func(Partition, error) bool) {
		err := p.Run(ctx, w, func(_ int, part Partition) error {
			if !yield(part, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(nil, err)
		}
	}
}

// errEnough ends a run whose consumer wants no more.
var errEnough = errors.New("the consumer wants no more")

// Split does the work and deals what it gives to n consumers in turn: partition i, in the order of the data, is consumer i mod n's,
// whatever each of them takes its time for. take is called in order for one consumer and at the same time for others, each in a
// goroutine of its own. A partition does not count as stored any more when its consumer has it: up to n are beside
// the limit. One that is not done holds up the others as soon as its next partition is due. Split returns when all
// tasks and consumers have ended, with the first error.
func (p *Pipeline) Split(ctx context.Context, w Work, n int, take func(consumer int, part Partition) error) error {
	if n < 1 {
		return fmt.Errorf("engine: a split into %d: give 1 or more", n)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var consumers sync.WaitGroup
	dealt := make([]chan Partition, n)
	for i := range dealt {
		dealt[i] = make(chan Partition)
		consumers.Go(func() {
			for part := range dealt[i] {
				if err := take(i, part); err != nil {
					end(err)
					return
				}
			}
		})
	}
	next := 0
	err := p.Run(ctx, w, func(_ int, part Partition) error {
		to := dealt[next%n]
		next++
		select {
		case to <- part:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	for _, d := range dealt {
		close(d)
	}
	consumers.Wait()
	if err == nil && ctx.Err() != nil { // by a consumer that had the last partition
		err = context.Cause(ctx)
	}
	return err
}

// Materialized is what some work gave, in memory. It is read-only, and safe for concurrent use.
type Materialized struct {
	Parts [][]Partition // of each source task that gave any, in order
	Bytes int64
}

// Materialize does the work and keeps all that it gives. That is the caller's, and counts in no ledger, so it takes most bytes at the
// most; more is an error of class fault.User.
func (p *Pipeline) Materialize(ctx context.Context, w Work, most int64) (*Materialized, error) {
	m, last := &Materialized{}, -1
	err := p.Run(ctx, w, func(source int, part Partition) error {
		if m.Bytes += part.Bytes(); m.Bytes > most {
			return fault.Userf("the outputs of stage %q take more than the %d bytes that are to be materialized: allow more, or iterate over them", p.stages[len(p.stages)-1].Name, most)
		}
		if source != last {
			m.Parts, last = append(m.Parts, nil), source
		}
		of := &m.Parts[len(m.Parts)-1]
		*of = append(*of, part)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Work is the work of a pipeline that begins with what was materialized, any number of times.
func (m *Materialized) Work() (w Work) {
	for _, parts := range m.Parts {
		s := Source{Read: func(_ context.Context, out *Output) error {
			for _, part := range parts {
				if err := out.Emit(part); err != nil {
					return err
				}
			}
			return nil
		}}
		for _, part := range parts {
			s.Expect += part.Bytes()
		}
		w.Sources = append(w.Sources, s)
	}
	return w
}
