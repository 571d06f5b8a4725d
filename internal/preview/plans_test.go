package preview_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/reference"
)

// TestPlansAreTheReferences plans every recipe and holds each document of each
// step against the reference reader: its row, its place there and its origin.
func TestPlansAreTheReferences(t *testing.T) {
	st := files()
	for _, r := range slices.Concat(recipes, bannedRecipes) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			want, j, n := r.solve(t, st), r.open(t, st, nil), 0
			end, err := j.Run(t.Context(), r.limit(), func(s *plan.Step) error {
				if n < len(want) {
					holdStep(t, j, s, want[n])
				}
				n++
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if n != len(want) || (r.steps == 0) != (end >= 0) || end >= 0 && end != int64(n) {
				t.Errorf("%d steps, the end at %d, want %d", n, end, len(want))
			}
		})
	}
}

// holdStep compares a planned step with the reference's.
func holdStep(t *testing.T, j *preview.Job, s *plan.Step, want *reference.Step) {
	t.Helper()
	if s.Step != want.Step || !slices.Equal(s.Drawn, want.Drawn) || len(s.Rows) != len(want.Rows) {
		t.Fatalf("step %d draws %v for %d rows, want step %d, %v, %d", s.Step, s.Drawn, len(s.Rows), want.Step, want.Drawn, len(want.Rows))
	}
	row, k, offset := -1, 0, 0
	err := j.Locate(t.Context(), s, nil, func(x *preview.Sample) error {
		if x.Row != row {
			row, k, offset = x.Row, 0, 0
		}
		w := want.Places[x.Row][k]
		got := reference.Place{Source: x.Source, File: x.File, Row: x.Record, Piece: x.Piece, Seq: x.Block, Index: x.Index}
		tokens := len(want.Rows[x.Row].Segments[k])
		if got != w || int(x.Tokens) != tokens || x.Piece >= x.Pieces {
			t.Fatalf("step %d row %d document %d is %+v of %d tokens (piece %d of %d), want %+v of %d", s.Step, x.Row, k, got, x.Tokens, x.Piece, x.Pieces, w, tokens)
		}
		if int(x.Offset) < offset {
			t.Fatalf("step %d row %d document %d begins at %d, inside the one before, which ends at %d", s.Step, x.Row, k, x.Offset, offset)
		}
		if got, want := x.Images, patchesOf(want.Rows[x.Row], k); !slices.EqualFunc(got, want, func(i preview.Image, patches int) bool { return int(i.Patches) == patches && i.Encoder >= 0 }) {
			t.Fatalf("step %d row %d document %d has the images %v, want %v", s.Step, x.Row, k, got, want)
		}
		offset = int(x.Offset) + tokens
		k++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	documents := 0
	for _, places := range want.Places {
		documents += len(places)
	}
	if documents != s.Count() {
		t.Fatalf("step %d has %d documents, want %d", s.Step, s.Count(), documents)
	}
}

// patchesOf are the patches of the images of a row's document.
func patchesOf(row batch.Row, document int) (patches []int) {
	for _, x := range row.Images {
		if x.Document == document {
			patches = append(patches, x.H*x.W)
		}
	}
	return patches
}

// digests plans a recipe and returns the digests of its plans.
func digests(t *testing.T, j *preview.Job, steps int64) (all [][32]byte) {
	t.Helper()
	if _, err := j.Run(t.Context(), steps, func(s *plan.Step) error {
		all = append(all, token.PlanDigest(s))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestWorkersChangeNoPlan reads with one goroutine and with many.
func TestWorkersChangeNoPlan(t *testing.T) {
	st := files()
	for _, r := range recipes {
		var want [][32]byte
		for _, workers := range []int{1, 2, 16} {
			got := digests(t, r.open(t, st, func(o *preview.Options) { o.Workers = workers }), r.limit())
			if want == nil {
				want = got
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: the plans of %d workers are others than those of one", r.name, workers)
			}
		}
	}
}

// TestStops ends runs early: by visit, by the caller, by an error.
func TestStops(t *testing.T) {
	st, r := files(), recipes[0]
	n := 0
	end, err := r.open(t, st, nil).Run(t.Context(), -1, func(*plan.Step) error {
		if n++; n == 5 {
			return preview.ErrStop
		}
		return nil
	})
	if n != 5 || end != -1 || err != nil {
		t.Errorf("a run that is stopped in its 5th step comes to %d, %d, %v", n, end, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err = r.open(t, st, nil).Run(ctx, -1, func(*plan.Step) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that is cancelled ends with %v", err)
	}
	own := errors.New("enough")
	if _, err = r.open(t, st, nil).Run(t.Context(), -1, func(*plan.Step) error { return own }); !errors.Is(err, own) {
		t.Errorf("a run whose visit fails ends with %v", err)
	}
}
