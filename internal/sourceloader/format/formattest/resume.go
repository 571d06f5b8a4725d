package formattest

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// checkResume: a chunk that is stopped after any record goes on with the next one.
func checkResume(t *testing.T, c Case) {
	st, obj := c.store(t, "", nil)
	for _, size := range []int64{64, 1 << 40} {
		opt := format.Options{Columns: c.Columns, ChunkBytes: size}
		if err := Resume(t.Context(), c.Format, st, obj, opt, 1); err != nil {
			t.Errorf("chunks of %d bytes: %v", size, err)
		}
	}
}

// Resume reads each chunk of obj in one go, and again in two parts that meet at every
// stride-th record, and returns an error if the two differ. The position behind the
// last record must give nothing.
func Resume(ctx context.Context, f format.Format, st store.Store, obj store.Object, opt format.Options, stride int) error {
	chunks, err := f.Chunks(ctx, st, obj, opt)
	if err != nil {
		return err
	}
	for chunk := range chunks {
		whole, err := readFrom(ctx, f, st, obj, chunk, 0, 0, opt)
		if err != nil {
			return fmt.Errorf("chunk %d: %w", chunk, err)
		}
		for k := 0; k < len(whole); k += stride {
			head, err := readFrom(ctx, f, st, obj, chunk, 0, k+1, opt)
			if err != nil {
				return fmt.Errorf("chunk %d up to record %d: %w", chunk, k, err)
			}
			tail, err := readFrom(ctx, f, st, obj, chunk, head[k].After(), 0, opt)
			if err != nil {
				return fmt.Errorf("chunk %d after record %d: %w", chunk, k, err)
			}
			if both := append(head, tail...); !same(both, whole) {
				return fmt.Errorf("chunk %d stopped after record %d, at %d: %s", chunk, k, head[k].After(), difference(both, whole))
			}
		}
	}
	return nil
}

func difference(got, want []format.Record) string {
	for i := range min(len(got), len(want)) {
		if a, b := Print(got[i]), Print(want[i]); a != b {
			return fmt.Sprintf("record %d is %.200s, want %.200s", i, a, b)
		}
	}
	return fmt.Sprintf("%d records, want %d", len(got), len(want))
}

// readFrom returns copies of the records of a chunk from a position on, most at the most
// unless that is 0.
func readFrom(ctx context.Context, f format.Format, st store.Store, obj store.Object, chunk int, from format.Position, most int, opt format.Options) ([]format.Record, error) {
	r, err := f.Open(ctx, st, obj, chunk, from, opt)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var records []format.Record
	for most == 0 || len(records) < most {
		rec, err := r.Next()
		if err == io.EOF {
			return records, nil
		}
		if err != nil {
			return records, err
		}
		records = append(records, Clone(rec))
	}
	return records, nil
}

// checkBatches: batches of any size hold the records of the file, keep them when the
// reader is gone, stay within their limit unless one record is longer, and each ends
// at a position where another reader goes on.
func checkBatches(t *testing.T, c Case) {
	st, obj := c.store(t, "", nil)
	opt := format.Options{Columns: c.Columns}
	want := c.read(t, opt)
	for _, limit := range []int64{1, 300, 1000, 1 << 20} {
		var got []format.Record
		chunks, err := c.Format.Chunks(t.Context(), st, obj, opt)
		if err != nil {
			t.Fatal(err)
		}
		for chunk := range chunks {
			batches, err := readBatches(t.Context(), c.Format, st, obj, chunk, opt, limit)
			if err != nil {
				t.Fatalf("batches of %d bytes: %v", limit, err)
			}
			for _, b := range batches {
				if b.Bytes() > limit && b.Len() > 1 {
					t.Errorf("a batch of %d records has %d bytes, the limit is %d", b.Len(), b.Bytes(), limit)
				}
				var rec format.Record
				for i := range b.Len() {
					b.Record(i, &rec)
					got = append(got, Clone(&rec))
				}
			}
		}
		if !same(got, want) {
			t.Errorf("batches of %d bytes: %s", limit, difference(got, want))
		}
	}
}

// readBatches reads every batch through a reader of its own.
func readBatches(ctx context.Context, f format.Format, st store.Store, obj store.Object, chunk int, opt format.Options, limit int64) ([]*format.Batch, error) {
	var batches []*format.Batch
	for at := format.Position(0); ; {
		r, err := Poison(f).Open(ctx, st, obj, chunk, at, opt)
		if err != nil {
			return nil, err
		}
		b, next, err := format.NewBatchReader(r).ReadBatch(limit)
		r.Close()
		if err == io.EOF {
			return batches, nil
		}
		if err != nil {
			return nil, err
		}
		if next <= at {
			return nil, fmt.Errorf("a batch of %d records goes from %d to %d", b.Len(), at, next)
		}
		batches, at = append(batches, b), next
	}
}

// checkHeld: a reader holds something while it reads.
func checkHeld(t *testing.T, c Case) {
	st, obj := c.store(t, "", nil)
	r, err := c.Format.Open(t.Context(), st, obj, 0, 0, format.Options{Columns: c.Columns})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Next(); err != nil && err != io.EOF || r.Held() <= 0 {
		t.Errorf("a reader holds %d bytes after its first record: %v", r.Held(), err)
	}
}
