package plan_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// evenWorld is a world whose rows have one width, as jobs whose samples wait need it.
func evenWorld(rng *rand.Rand) world {
	for {
		if w := anyWorld(rng); w.cfg.Widest <= 1 {
			return w
		}
	}
}

// TestOutliersWait follows every sample from the step that draws it: what a queue
// holds is bounded, and nothing waits that it does not hold. A sample's wait ends
// when it has lasted as long as it may, or with others of its level, or with the
// data; and in the step in which it ends the sample is delivered.
func TestOutliersWait(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	together, late, flushed := 0, 0, 0
	for range rounds(150) {
		w := evenWorld(rng)
		w.cfg.Outliers = anyQueue(rng, w.cfg)
		steps := int64(40)
		if w.cfg.Epochs > 0 {
			steps = 1 << 40 // to the end of the data
		}
		h := w.run(t, steps, nil)
		q, held := w.cfg.Outliers, map[plan.Ref]int64{}
		for _, s := range h.steps {
			count := make([]int, len(q.Thresholds)+1)
			after := map[plan.Ref]int64{}
			for _, x := range s.After.Held {
				level := q.Level(x.Length)
				if count[level]++; level == 0 || count[level] > 2*q.Release {
					t.Fatalf("step %d: %d samples of level %d are held with %+v", s.Step, count[level], level, q)
				}
				if since, before := held[x.Ref]; before && since != x.Since || !before && x.Since != s.Step {
					t.Fatalf("step %d: a sample is held since step %d, before %d", s.Step, x.Since, since)
				}
				after[x.Ref] = x.Since
			}
			over := map[int]int{}
			for i, x := range s.Waited {
				if since, ok := held[x.Ref]; !ok || since != x.Since || s.Placed.RowOf[i] < 0 {
					t.Fatalf("step %d: a sample was released that was not held, or is in no row: %+v", s.Step, x)
				}
				if s.Step-x.Since < q.Patience {
					over[q.Level(x.Length)]++
					together++
				} else {
					late++
				}
				delete(held, x.Ref)
			}
			for level, n := range over {
				if of := releasedOf(s.Waited, level, q.Level); of < q.Release {
					t.Fatalf("step %d: %d samples of a level are released before their time, %d in all; it takes %d", s.Step, n, of, q.Release)
				}
			}
			if len(s.Waited) > w.cfg.Rows {
				t.Fatalf("step %d: %d samples are released into %d rows", s.Step, len(s.Waited), w.cfg.Rows)
			}
			for ref, since := range held { // gone without a release: only as nothing could be drawn
				if _, on := after[ref]; on {
					if s.Step-since >= q.Patience && len(s.Waited) < w.cfg.Rows {
						t.Fatalf("step %d: a sample waits since step %d, longer than %d steps", s.Step, since, q.Patience)
					}
				} else if flushed++; h.ended < 0 {
					t.Fatalf("step %d: a sample left the queue before its time", s.Step)
				}
			}
			held = after
		}
		if h.ended >= 0 && len(held) > 0 {
			t.Fatalf("%d samples are held at the end of the data", len(held))
		}
	}
	if together == 0 || late == 0 || flushed == 0 {
		t.Errorf("%d samples came together, %d late, %d at the end: nothing is shown", together, late, flushed)
	}
}

func releasedOf(waited []plan.Held, level int, of func(int32) int) (n int) {
	for _, x := range waited {
		if of(x.Length) == level {
			n++
		}
	}
	return n
}

// TestOutliersMix: the mix counts a sample when it is drawn. After each step no
// source is ahead of its schedule by more than its longest sample, however many
// wait.
func TestOutliersMix(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	waited := 0
	for range rounds(60) {
		w := evenWorld(rng)
		w.cfg.Epochs, w.cfg.CountSamples = 0, false
		w.cfg.Outliers = anyQueue(rng, w.cfg)
		weights := make([]float64, len(w.cfg.Sources))
		for i := range weights {
			weights[i] = 0.05 + rng.Float64()
		}
		w.cfg.Schedule = mix.NewSchedule([]mix.Stage{{Weights: weights}})
		shares := w.cfg.Schedule.Shares(0)
		total := int64(0)
		for _, s := range w.run(t, 40, nil).steps {
			waited += len(s.Waited)
			for _, n := range s.Drawn {
				total += n
			}
			for i, cur := range s.After.Cursors {
				due := float64(shares[i]) / (1 << 32) * float64(total)
				if ahead := float64(cur.Tokens) - due; ahead > float64(w.cfg.SequenceLength)+0.1 {
					t.Fatalf("step %d: source %d is %.1f tokens ahead of its schedule, rows have %d", s.Step, i, ahead, w.cfg.SequenceLength)
				}
			}
		}
	}
	if waited == 0 {
		t.Error("no sample waited: nothing is shown")
	}
}

// TestNoOutliers: thresholds above all samples change no plan.
func TestNoOutliers(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for range rounds(20) {
		w := evenWorld(rng)
		w.cfg.Outliers.Thresholds = nil
		want := w.run(t, 20, nil)
		w.cfg.Outliers = anyQueue(rng, w.cfg)
		w.cfg.Outliers.Thresholds = []int32{w.cfg.SequenceLength + 1}
		got := w.run(t, 20, nil)
		if len(got.steps) != len(want.steps) {
			t.Fatalf("%d steps, %d without", len(got.steps), len(want.steps))
		}
		for k, s := range got.steps {
			if !slices.Equal(s.Samples(), want.steps[k].Samples()) || s.After.Held != nil {
				t.Fatalf("step %d is another one", k)
			}
		}
	}
}
