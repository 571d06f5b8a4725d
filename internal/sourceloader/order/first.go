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

// First lists the files of src as Index does, and gives fn the first record of the
// first file that has a chunk, if that has one. It checks a source as Index and the
// first block would, with their errors, but reads no more. The source that it
// returns has no manifest and no order.
func First(ctx context.Context, st store.Store, src *jobspec.Source, columns []string, fn func(format.Format, store.Object, *format.Record) error) (*Source, error) {
	s, objects, err := find(ctx, st, src, columns)
	if err != nil {
		return nil, wrap(src.Name, err)
	}
	for _, obj := range objects {
		chunks, err := s.Format.Chunks(ctx, st, obj, s.Options)
		if err == nil && chunks == 0 {
			continue
		}
		if err == nil {
			err = format.Read(ctx, s.Format, st, obj, 0, s.Options, func(rec *format.Record) error {
				if err := fn(s.Format, obj, rec); err != nil {
					return err
				}
				return errEnough
			})
		}
		if err != nil && !errors.Is(err, errEnough) {
			return nil, wrap(src.Name, err)
		}
		return s, nil
	}
	return nil, empty(src, len(objects))
}
