// Package operator makes stages of the engine out of functions over rows: read, map, map_batches, flat_map, filter,
// write and limit.
//
// It owns the cutting of rows into partitions: by the stage's target size and nothing else, so that the same rows give the same
// partitions. It starts nothing and keeps nothing between two tasks; engine.Pipeline runs what it makes, and its Run, Iter, Split and
// Materialize consume it. A job's sources do not use it: their records have addresses and policies that rows do not have
// (docs/engine.md says which operators a job has).
package operator

import (
	"context"
	"fmt"
	"iter"

	"github.com/millrace-data/millrace/internal/engine"
)

// Row is a row of a partition. It is read-only once given.
type Row interface{ Bytes() int64 }

// Rows is a partition of rows.
type Rows[T Row] struct {
	Values []T
	bytes  int64
}

// Bytes is the sum of the rows'.
func (r *Rows[T]) Bytes() int64 { return r.bytes }

// writer gives rows in partitions, for which it reserves room row by row.
type writer[T Row] struct {
	out  *engine.Output
	open *Rows[T]
}

func writing[T Row](out *engine.Output) *writer[T] { return &writer[T]{out, &Rows[T]{}} }

func (w *writer[T]) add(row T) error {
	n := row.Bytes()
	if w.open.bytes > 0 && w.open.bytes+n > w.out.Target() {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if err := w.out.Reserve(w.open.bytes + n); err != nil {
		return err
	}
	w.open.Values, w.open.bytes = append(w.open.Values, row), w.open.bytes+n
	return nil
}

func (w *writer[T]) flush() error {
	if len(w.open.Values) == 0 {
		return nil
	}
	full := w.open
	w.open = &Rows[T]{}
	return w.out.Emit(full)
}

// Read is a source task that gives the rows of a sequence, which is begun again if the task is lost. expect is how many bytes they are
// expected to take.
func Read[T Row](expect int64, rows func(context.Context) iter.Seq2[T, error]) engine.Source {
	return engine.Source{Expect: expect, Read: func(ctx context.Context, out *engine.Output) error {
		w := writing[T](out)
		for row, err := range rows(ctx) {
			if err != nil {
				return err
			}
			if err := w.add(row); err != nil {
				return err
			}
		}
		return w.flush()
	}}
}

// FlatMap completes a stage, of which name, needs and target size are given: f makes any number of rows of each. f may be
// called again for the same row, and at the same time for others.
func FlatMap[T, U Row](s engine.Stage, f func(context.Context, T) ([]U, error)) engine.Stage {
	return process(s, func(ctx context.Context, rows []T, give func(U) error) error {
		for _, row := range rows {
			made, err := f(ctx, row)
			if err != nil {
				return err
			}
			for _, one := range made {
				if err := give(one); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Map is FlatMap for one row of each.
func Map[T, U Row](s engine.Stage, f func(context.Context, T) (U, error)) engine.Stage {
	return FlatMap(s, func(ctx context.Context, row T) ([]U, error) {
		made, err := f(ctx, row)
		return []U{made}, err
	})
}

// Filter is FlatMap that keeps the rows for which f is true.
func Filter[T Row](s engine.Stage, f func(context.Context, T) (bool, error)) engine.Stage {
	return FlatMap(s, func(ctx context.Context, row T) ([]T, error) {
		keep, err := f(ctx, row)
		if !keep {
			return nil, err
		}
		return []T{row}, err
	})
}

// MapBatches completes a stage: f makes any number of rows of all that a task takes, which is a partition, small ones together
// (Stage.Merge), or what several source tasks gave (Stage.Gather).
func MapBatches[T, U Row](s engine.Stage, f func(context.Context, []T) ([]U, error)) engine.Stage {
	return process(s, func(ctx context.Context, rows []T, give func(U) error) error {
		made, err := f(ctx, rows)
		for i := 0; i < len(made) && err == nil; i++ {
			err = give(made[i])
		}
		return err
	})
}

// Write completes the last stage of a pipeline: f puts the rows that a task takes somewhere. It may be called again with the same rows,
// and writes the same then.
func Write[T Row](s engine.Stage, f func(context.Context, []T) error) engine.Stage {
	s.Sink = true
	return process(s, func(ctx context.Context, rows []T, _ func(T) error) error { return f(ctx, rows) })
}

// process completes a stage whose tasks take rows and give some.
func process[T, U Row](s engine.Stage, f func(ctx context.Context, rows []T, give func(U) error) error) engine.Stage {
	s.Keeps = !s.Sink
	s.Process = func(ctx context.Context, in []engine.Partition, out *engine.Output) error {
		var rows []T
		for _, part := range in {
			given, ok := part.(*Rows[T])
			if !ok {
				return fmt.Errorf("it takes rows of another type than %T", part)
			}
			if len(in) == 1 {
				rows = given.Values
				break
			}
			rows = append(rows, given.Values...)
		}
		w := writing[U](out)
		if err := f(ctx, rows, w.add); err != nil {
			return err
		}
		return w.flush()
	}
	return s
}

// Limit returns the first n rows of a pipeline's partitions, in the order of the data, and then an error if there was one before
// them. What comes behind them is not worked on any more.
func Limit[T Row](parts iter.Seq2[engine.Partition, error], n int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		if n <= 0 {
			return
		}
		left := n
		for part, err := range parts {
			if err != nil {
				yield(none, err)
				return
			}
			rows, ok := part.(*Rows[T])
			if !ok {
				yield(none, fmt.Errorf("limit: partitions of %T", part))
				return
			}
			for _, row := range rows.Values {
				if left--; !yield(row, nil) || left == 0 {
					return
				}
			}
		}
	}
}
