package order_test

import (
	"fmt"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// TestLimit: a limited source has the first records in the order of files and rows, bad ones counted,
// also where a unit is opened in its middle, and its manifest ends with the last of them.
func TestLimit(t *testing.T) {
	var st store.Memory
	for file := range 3 {
		var data []byte
		for i := range 10 {
			if i == 4 {
				data = append(data, "bad\n"...)
				continue
			}
			data = fmt.Appendf(data, `{"n":%d,"pad":"............"}`+"\n", 10*file+i)
		}
		st.Put(fmt.Sprintf("/d/%d.jsonl", file), data)
	}
	for _, limit := range []int64{1, 4, 5, 9, 10, 11, 20, 29, 30, 31} {
		for _, chunk := range []int64{40, 100, 1 << 20} {
			src := &jobspec.Source{Name: "s", Files: []string{"/d"}, ChunkBytes: chunk, Transforms: []jobspec.Transform{jobspec.Limit(limit)}}
			s, err := order.Index(t.Context(), &st, src, 1, []string{"n"})
			if err != nil {
				t.Fatal(err)
			}
			got := int64(0)
			for c := range s.Order.Layout.Chunks() {
				for _, u := range s.Order.Layout.Units(c) {
					var rows []format.Position
					if err := s.ReadUnit(t.Context(), &st, u, func(rec *format.Record) error {
						if rec.Err == nil && rec.Values[0].Int != got {
							t.Errorf("limit %d, chunks of %d: record %d is %d", limit, chunk, got, rec.Values[0].Int)
						}
						got++
						rows = append(rows, format.Position(rec.Row))
						return nil
					}); err != nil {
						t.Fatal(err)
					}
					if len(rows) == 0 {
						continue
					}
					r, err := s.OpenUnit(t.Context(), &st, u, rows[len(rows)/2])
					if err != nil {
						t.Fatal(err)
					}
					n := 0
					if err := format.Each(r, func(*format.Record) error { n++; return nil }); err != nil || n != len(rows)-len(rows)/2 {
						t.Errorf("limit %d, chunks of %d: %d of %d records from the middle on, %v", limit, chunk, n, len(rows), err)
					}
				}
			}
			if want := min(limit, 30); got != want || int64(len(s.Manifest.Files)) != (want+9)/10 {
				t.Errorf("limit %d, chunks of %d: %d records of %d files", limit, chunk, got, len(s.Manifest.Files))
			}
		}
	}
}
