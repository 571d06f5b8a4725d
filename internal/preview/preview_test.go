package preview_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/preview"
)

// TestPreview holds the content of a step against the reference reader's.
func TestPreview(t *testing.T) {
	st := files()
	for _, r := range recipes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			const step = 7
			p, err := r.open(t, st, nil).Preview(t.Context(), preview.Query{Step: step, Microbatch: -1}, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := r.solve(t, st)[step].Rows
			got := make([]batch.Row, len(want))
			for _, d := range p.Documents {
				got[d.Row].Segments = append(got[d.Row].Segments, d.IDs)
				if d.Text != nil && int(d.Tokens) != len(d.IDs) {
					t.Errorf("%d ids of %d tokens", len(d.IDs), d.Tokens)
				}
			}
			var digests [][32]byte
			plain := true
			for i, row := range want {
				if !slices.EqualFunc(row.Segments, got[i].Segments, slices.Equal) {
					t.Errorf("row %d holds other tokens", i)
				}
				digests = append(digests, batch.RowDigest(row))
				plain = plain && len(row.Kept) == 0 && len(row.Images) == 0
			}
			if digest := fmt.Sprintf("%x", batch.StepDigest(step, digests)); p.Content != digest && (plain || p.Content != "") {
				t.Errorf("the content's digest is %s, want %s", p.Content, digest)
			}
		})
	}
}
