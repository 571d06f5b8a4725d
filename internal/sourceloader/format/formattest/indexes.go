package formattest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// checkIndexes: with what is kept of a file, chunks give what they give without, whichever comes first and
// whoever reads beside; and a file that was written again is not read by what was kept of it.
func checkIndexes(t *testing.T, c Case) {
	st, obj := c.store(t, "", nil)
	opt := format.Options{Columns: c.Columns, ChunkBytes: 64, Indexes: format.NewIndexes()}
	want := c.read(t, format.Options{Columns: c.Columns, ChunkBytes: 64})
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			got, err := readBackwards(t.Context(), c.Format, st, obj, opt, k%2 == 0)
			if err != nil || !same(got, want) {
				t.Errorf("reading from the last chunk to the first: %d records, want %d: %v", len(got), len(want), err)
			}
		})
	}
	wg.Wait()
	again, err := st.Stat(t.Context(), st.Put(c.File, c.Files[c.File]))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readBackwards(t.Context(), c.Format, st, obj, opt, false); !errors.Is(err, store.ErrChanged) {
		t.Errorf("reading a file that was written again: %v", err)
	}
	if opt.Indexes.Get(again) != nil {
		t.Error("something is kept of a file that was not read")
	}
	if got, err := ReadAll(t.Context(), c.Format, st, again, opt); err != nil || !same(got, want) {
		t.Errorf("reading the file that was written again: %d records, want %d: %v", len(got), len(want), err)
	}
}

// readBackwards is ReadAll from the last chunk to the first. Chunks are counted by what is kept, or without.
func readBackwards(ctx context.Context, f format.Format, st store.Store, obj store.Object, opt format.Options, keep bool) ([]format.Record, error) {
	counting := opt
	if !keep {
		counting.Indexes = nil
	}
	chunks, err := f.Chunks(ctx, st, obj, counting)
	var records []format.Record
	for chunk := chunks - 1; chunk >= 0 && err == nil; chunk-- {
		var part []format.Record
		err = format.Read(ctx, f, st, obj, chunk, opt, func(r *format.Record) error {
			part = append(part, Clone(r))
			return nil
		})
		slices.Reverse(part)
		records = append(records, part...)
	}
	slices.Reverse(records)
	return records, err
}
