package order

import (
	"context"
	"errors"
	"io"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// last is the last record of a source whose first records alone are taken.
type last struct {
	file int
	row  int64
	set  bool
}

// limit ends the source behind its first n records, those that cannot be used included. It reads them.
func (s *Source) limit(ctx context.Context, st store.Store, n int64) error {
	files := s.Manifest.Files
	for i := range files {
		for chunk := range files[i].Chunks {
			err := format.Read(ctx, s.Format, st, files[i].Object, chunk, s.Options, func(rec *format.Record) error {
				if n--; n > 0 {
					return nil
				}
				s.last = last{i, rec.Row, true}
				return errEnough
			})
			if errors.Is(err, errEnough) {
				files[i].Chunks = chunk + 1
				s.Manifest.Files = files[:i+1]
				return nil
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// until is a reader that ends behind a row.
type until struct {
	format.Reader
	row int64
}

// Next implements format.Reader.
func (u until) Next() (*format.Record, error) {
	rec, err := u.Reader.Next()
	if err == nil && rec.Row > u.row {
		return nil, io.EOF
	}
	return rec, err
}
