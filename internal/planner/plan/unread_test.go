package plan_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/plan"
)

// TestUnread: blocks of a source that is going to be dropped, and of which nothing is drawn until then, need not be
// readable. One that is drawn from ends the job when it is its turn, and any block of a source that stays does.
func TestUnread(t *testing.T) {
	const steps, dropAt = 20, 12
	errUnread := errors.New("row 7: no such field")
	asides, ends := 0, 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 6))
		run := func(w world, source int32, unread func(plan.Want) error) *driver {
			d := newDriver(t, w, rng)
			d.unread = unread
			d.take(d.core.Start())
			if source >= 0 && d.failed == nil {
				d.change(plan.Change{Kind: plan.Drop, Step: dropAt, Source: source})
			}
			d.run(steps, false)
			return d
		}
		w := changeable(rng)
		source := rng.Int32N(int32(len(w.cfg.Sources)))
		want := run(w, source, nil)
		if len(want.made) == 0 || len(want.steps) < dropAt {
			continue // it is the only one, or what is left ends
		}
		last := want.steps[len(want.steps)-1].After.Cursors[source].Seq
		drawn := int64(-1)
		for _, s := range want.steps {
			for _, r := range s.Samples() {
				if r.Source == source {
					drawn = max(drawn, r.Seq)
				}
			}
		}
		beyond := func(x plan.Want) error {
			if x.Source == source && x.Seq > last {
				asides++
				return errUnread
			}
			return nil
		}
		got := run(w, source, beyond)
		if got.failed != nil && len(got.made) > 0 {
			t.Fatalf("seed %d: %v, with a drop that comes first", seed, got.failed)
		}
		for k := range min(len(got.steps), len(want.steps)) {
			if !reflect.DeepEqual(got.steps[k].Samples(), want.steps[k].Samples()) {
				t.Fatalf("seed %d: step %d has other samples", seed, k)
			}
		}
		if drawn >= 0 {
			ends++
			if got := run(w, source, func(x plan.Want) error {
				if x.Source == source && x.Seq == drawn {
					return errUnread
				}
				return nil
			}); !errors.Is(got.failed, errUnread) {
				t.Fatalf("seed %d: a block that is drawn from cannot be read: %v after %d steps", seed, got.failed, len(got.steps))
			}
		}
		before := asides
		if got := run(w, -1, beyond); asides > before && !errors.Is(got.failed, errUnread) {
			t.Fatalf("seed %d: a block cannot be read, and the source stays: %v", seed, got.failed)
		}
	}
	if asides < 60 || ends < 20 {
		t.Errorf("%d blocks were set aside only, and %d jobs ended", asides, ends)
	}
}
