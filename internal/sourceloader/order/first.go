package order

import (
	"context"
	"errors"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// errEnough ends a read after its first record.
var errEnough = errors.New("one record is enough")

// First lists the files of src as Index does, and gives fn the first record of the first file that has one. It checks a
// source as Index and the first block would, with their errors, but reads no more; a source without a record is
// empty, if its files have chunks or not. The source that it returns has no manifest and no order.
func First(ctx context.Context, st store.Store, src *jobspec.Source, columns []string, fn func(format.Format, store.Object, *format.Record) error) (*Source, error) {
	s, objects, err := find(ctx, st, src, columns)
	if err != nil {
		return nil, wrap(src.Name, err)
	}
	for _, obj := range objects {
		err := s.firstOf(ctx, st, obj, func(rec *format.Record) error { return fn(s.Format, obj, rec) })
		if errors.Is(err, errEnough) {
			return s, nil
		}
		if err != nil {
			return nil, wrap(src.Name, err)
		}
	}
	return nil, Empty(src, len(objects))
}

// firstOf gives fn the first record of a file, and ends with errEnough if there is one.
func (s *Source) firstOf(ctx context.Context, st store.Store, obj store.Object, fn func(*format.Record) error) error {
	chunks, err := s.Format.Chunks(ctx, st, obj, s.Options)
	for chunk := 0; chunk < chunks && err == nil; chunk++ {
		err = format.Read(ctx, s.Format, st, obj, chunk, s.Options, func(rec *format.Record) error {
			if err := fn(rec); err != nil {
				return err
			}
			return errEnough
		})
	}
	return err
}
