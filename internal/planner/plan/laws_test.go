package plan_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// world is what a core hears about: sources with blocks of random lengths,
// and trainers that go on step by step.
type world struct {
	cfg    plan.Config
	seed   uint64
	most   int // samples in a block at most
	longer int // times a sample is as long as the row, in 100
	tiny   int // times one that is not has a token only, in 100
}

// anyWorld makes a job of up to five sources.
func anyWorld(rng *rand.Rand) world {
	n := 1 + rng.IntN(5)
	w := world{seed: rng.Uint64(), most: rng.IntN(40), longer: rng.IntN(20)}
	w.cfg = plan.Config{
		SequenceLength: []int32{1, 7, 64, 512}[rng.IntN(4)], Rows: 1 + rng.IntN(20), Packing: rng.IntN(4) > 0,
		CountSamples: rng.IntN(4) == 0, Ahead: 1 + rng.Int64N(6), Window: 1 + rng.IntN(100), Renormalize: rng.IntN(2) == 0,
	}
	if rng.IntN(2) == 0 {
		w.cfg.Epochs = 1 + rng.Int64N(3)
	}
	stages := make([]mix.Stage, 1+rng.IntN(3))
	for i := range n {
		s := plan.Source{Name: fmt.Sprint(i), Blocks: 1 + rng.Int64N(12)}
		if rng.IntN(3) == 0 {
			s.Limit = 1 + rng.Int64N(60)
		}
		w.cfg.Sources = append(w.cfg.Sources, s)
	}
	from := int64(0)
	for k := range stages {
		stages[k] = mix.Stage{From: from, Ramp: []string{"none", "linear", "cosine"}[rng.IntN(3)], Over: rng.Int64N(6)}
		for range n {
			stages[k].Weights = append(stages[k].Weights, rng.Float64()*float64(rng.IntN(4)))
		}
		stages[k].Weights[rng.IntN(n)] = 1
		from += 1 + rng.Int64N(10)
	}
	w.cfg.Schedule = mix.NewSchedule(stages)
	own := rand.New(rand.NewPCG(w.seed, 0))
	if rng.IntN(3) == 0 {
		w.widen(rng)
	} else if own.IntN(2) == 0 {
		w.cfg.Outliers = anyQueue(own, w.cfg)
	}
	if own.IntN(3) == 0 { // rows are full of long samples, with too many short ones to carry
		w.most, w.longer, w.tiny = 200, 20, 90
	}
	return w
}

// widen makes it a world with rows of several widths, on any mesh.
func (w *world) widen(rng *rand.Rand) {
	w.cfg.Packing, w.cfg.Pool, w.cfg.Widest = true, true, 2<<rng.IntN(3)
	sizes := mesh.Sizes{DP: int(w.cfg.Widest), CP: 1 + rng.IntN(2), PP: 1 + rng.IntN(2), TP: 1, VPP: 1, EP: 1}
	if rng.IntN(2) == 0 {
		sizes.DP, sizes.CP = sizes.CP, sizes.DP
	}
	w.cfg.Mesh, _ = mesh.New(sizes)
	w.cfg.Rows = sizes.DP * sizes.CP * (1 + rng.IntN(5))
	for i := range w.cfg.Sources {
		w.cfg.Sources[i].Longest = w.cfg.SequenceLength * w.cfg.Widest
	}
	if rng.IntN(2) == 0 {
		w.cfg.Strategy = func(s *strategy.Step) error {
			g := s.Graph(dgraph.Text)
			g.Mix(nil)
			g.Distribute("cp", 1)
			g.Cost(cost.Func(func(s cost.Sample) int64 { return s.Tokens * s.Tokens }))
			g.Balance(strategy.Balance{})
			return g.Plan()
		}
	}
}

// anyQueue has samples wait, from few of them to all.
func anyQueue(rng *rand.Rand, cfg plan.Config) balance.OutlierQueue {
	q := balance.OutlierQueue{Release: 1 + rng.IntN(cfg.Rows), Patience: 1 + rng.Int64N(6)}
	for from := 1 + rng.Int32N(cfg.SequenceLength); from <= cfg.SequenceLength && len(q.Thresholds) < 3; from += 1 + rng.Int32N(cfg.SequenceLength) {
		q.Thresholds = append(q.Thresholds, from)
	}
	return q
}

// lengths of a block: a function of its name. No source is barren.
func (w world) lengths(source int32, seq int64) []int32 {
	rng := rand.New(rand.NewPCG(w.seed, uint64(source)<<32+uint64(seq)))
	n := rng.IntN(w.most + 1)
	if blocks := w.cfg.Sources[source].Blocks; seq%blocks == int64(w.seed)&7%blocks {
		n++
	}
	lengths := make([]int32, n)
	for i := range lengths {
		lengths[i] = 1 + rng.Int32N(w.cfg.SequenceLength)
		if rng.IntN(100) < w.longer {
			lengths[i] = w.cfg.SequenceLength
		} else if w.tiny > 0 && rng.IntN(100) < w.tiny {
			lengths[i] = 1
		}
		if w.cfg.Widest > 1 && rng.IntN(8) == 0 {
			lengths[i] = 1 + rng.Int32N(w.cfg.SequenceLength*w.cfg.Widest)
		}
	}
	return lengths
}

// history is what came out of a core.
type history struct {
	steps []*plan.Step
	ended int64 // -1 if it did not
}

// run drives a core for some steps. With rng, blocks come in random order, some
// twice or too late, and acknowledgements at random times; else everything comes
// in the order it was asked for. It checks what must hold at any moment.
func (w world) run(t *testing.T, steps int64, rng *rand.Rand) history {
	t.Helper()
	core := plan.New(w.cfg)
	h := history{ended: -1}
	var wanted []plan.Want
	var past []plan.Want
	released := make([]int64, len(w.cfg.Sources))
	acked := int64(0)
	take := func(effects []plan.Effect) {
		for _, e := range effects {
			switch e := e.(type) {
			case plan.Want:
				if e.Seq < released[e.Source] {
					t.Fatalf("block %d of source %d is wanted after its release", e.Seq, e.Source)
				}
				if slices.Contains(wanted, e) || slices.Contains(past, e) {
					t.Fatalf("block %d of source %d is wanted twice", e.Seq, e.Source)
				}
				wanted = append(wanted, e)
			case plan.Release:
				released[e.Source] = e.Before
				for i := len(wanted) - 1; i >= 0; i-- { // nobody reads these any more
					if x := wanted[i]; x.Source == e.Source && x.Seq < e.Before {
						wanted, past = slices.Delete(wanted, i, i+1), append(past, x)
					}
				}
			case plan.Publish:
				h.steps = append(h.steps, e.Step)
			case plan.End:
				h.ended = e.Step
			case plan.Fail:
				t.Fatalf("with %+v: %v", w.cfg, e.Err)
			}
		}
		w.bounds(t, core, wanted, released, h, acked)
	}
	take(core.Start())
	for int64(len(h.steps)) < steps && h.ended < 0 {
		planned := int64(len(h.steps))
		if rng != nil && rng.IntN(2) == 0 {
			take(core.Prepare())
		}
		switch {
		case rng != nil && len(past) > 0 && rng.IntN(8) == 0: // once more
			p := past[rng.IntN(len(past))]
			take(core.Apply(plan.BlockRead{Source: p.Source, Seq: p.Seq, Lengths: []int32{1, 1, 1}}))
		case len(wanted) > 0 && (acked == planned || rng == nil || rng.IntN(3) > 0):
			i := 0
			if rng != nil {
				i = rng.IntN(len(wanted))
			}
			e := wanted[i]
			wanted, past = slices.Delete(wanted, i, i+1), append(past, e)
			take(core.Apply(plan.BlockRead{Source: e.Source, Seq: e.Seq, Lengths: w.lengths(e.Source, e.Seq)}))
		case acked < planned:
			acked++
			if rng != nil {
				acked += rng.Int64N(planned - acked + 1)
			}
			take(core.Apply(plan.Acked{Step: acked}))
		default:
			t.Fatalf("the core waits for nothing: %d steps planned with %+v", planned, w.cfg)
		}
	}
	h.steps = h.steps[:min(steps, int64(len(h.steps)))]
	return h
}

// bounds checks that a core does not run away, and lets go only of what no step
// under way or to come needs.
func (w world) bounds(t *testing.T, core *plan.Core, wanted []plan.Want, released []int64, h history, acked int64) {
	t.Helper()
	if core.Planned()-acked > w.cfg.Ahead {
		t.Fatalf("%d steps are planned and %d acknowledged; %d may be ahead", core.Planned(), acked, w.cfg.Ahead)
	}
	by := map[int32]int{}
	for _, e := range wanted {
		if by[e.Source]++; by[e.Source] > 5 { // four ahead, and one that a draw waits for
			t.Fatalf("%d blocks of source %d are wanted at a time", by[e.Source], e.Source)
		}
	}
	at, ok := core.State(acked)
	if !ok {
		t.Fatalf("position %d is acknowledged and gone", acked)
	}
	for _, s := range h.steps[min(acked, int64(len(h.steps))):] {
		for _, r := range s.Samples() {
			if r.Seq < released[r.Source] {
				t.Fatalf("step %d needs block %d of source %d, which was released", s.Step, r.Seq, r.Source)
			}
		}
	}
	for i, c := range at.Cursors {
		if c.Seq < released[i] {
			t.Fatalf("position %d needs block %d of source %d, which was released", acked, c.Seq, i)
		}
	}
	for _, h := range at.Held {
		if h.Seq < released[h.Source] {
			t.Fatalf("position %d holds a sample of block %d of source %d, which was released", acked, h.Seq, h.Source)
		}
	}
}

// TestArrivalChangesNothing: whatever comes when, and whatever is drawn before it is
// its turn, the plans are the same.
func TestArrivalChangesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range rounds(150) {
		w := anyWorld(rng)
		want := w.run(t, 40, nil)
		for range 3 {
			got := w.run(t, 40, rng)
			if len(want.steps) != len(got.steps) {
				t.Fatalf("%d steps in order, %d in another: %+v", len(want.steps), len(got.steps), w.cfg)
			}
			for k := range want.steps {
				if !reflect.DeepEqual(want.steps[k], got.steps[k]) {
					t.Fatalf("step %d is %+v in order and %+v in another, with %+v", k, want.steps[k], got.steps[k], w.cfg)
				}
			}
		}
	}
}

func rounds(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// TestWindowChangesNothing: how far is looked and planned ahead does not matter.
func TestWindowChangesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range rounds(100) {
		w := anyWorld(rng)
		want := w.run(t, 30, nil)
		w.cfg.Window, w.cfg.Ahead = 1+rng.IntN(300), 1+rng.Int64N(9)
		if got := w.run(t, 30, rng); !reflect.DeepEqual(want.steps, got.steps) {
			t.Fatalf("another window gives other plans: %+v", w.cfg)
		}
	}
}

// TestPlansHold checks every plan on its own: rows not too full, samples as they
// are, few carried over, the ledger right.
func TestPlansHold(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range rounds(150) {
		w := anyWorld(rng)
		h := w.run(t, 40, nil)
		drawn := make([]int64, len(w.cfg.Sources))
		for k, s := range h.steps {
			if s.Step != int64(k) || s.After.Step != int64(k+1) || w.cfg.Widest == 0 && len(s.Rows) != w.cfg.Rows {
				t.Fatalf("step %d is number %d with %d rows", s.Step, k, len(s.Rows))
			}
			checkSpans(t, w, s)
			at, filled := int32(0), int64(0)
			for row, n := range s.Rows {
				_, width := s.Placed.Span(row)
				room := w.cfg.SequenceLength * int32(width)
				full := room
				for _, r := range s.Samples()[at : at+n] {
					if w.lengths(r.Source, r.Seq)[r.Index] != r.Length {
						t.Fatalf("step %d has a sample of length %d: %+v", k, w.lengths(r.Source, r.Seq)[r.Index], r)
					}
					room -= r.Length
				}
				at += n
				filled += int64(full - room)
				if room < 0 || width > 1 && room >= full/2 || (!w.cfg.Packing && n > 1) {
					t.Fatalf("step %d has a row of %d samples with %d tokens of room", k, n, room)
				}
			}
			if int(at) != s.Count() || filled != s.Filled || len(s.After.Carry) > 32 {
				t.Fatalf("step %d: %d of %d samples in rows, %d of %d tokens, %d carried over", k, at, s.Count(), filled, s.Filled, len(s.After.Carry))
			}
			for i := range drawn {
				if drawn[i] += s.Drawn[i]; drawn[i] != s.After.Cursors[i].Tokens {
					t.Fatalf("step %d: %d tokens of source %d were drawn, the cursor says %d", k, drawn[i], i, s.After.Cursors[i].Tokens)
				}
			}
		}
	}
}

// checkSpans: every microbatch slot of every rank has one row, and the ranks of a row
// are aligned.
func checkSpans(t *testing.T, w world, s *plan.Step) {
	t.Helper()
	ranks := s.Placed.Ranks()
	taken := make([]bool, ranks*s.Placed.Microbatches)
	for row := range s.Rows {
		first, width := s.Placed.Span(row)
		if first%width != 0 || width > max(int(w.cfg.Widest), 1) {
			t.Fatalf("step %d: row %d is on %d ranks from %d on, with %+v", s.Step, row, width, first, w.cfg)
		}
		for rank := first; rank < first+width; rank++ {
			at := int(s.Placed.Microbatch[row])*ranks + rank
			if taken[at] {
				t.Fatalf("step %d: rank %d has two rows in microbatch %d, with %+v", s.Step, rank, s.Placed.Microbatch[row], w.cfg)
			}
			taken[at] = true
		}
	}
	if slices.Contains(taken, false) {
		t.Fatalf("step %d: a rank has no row in a microbatch, with %+v", s.Step, w.cfg)
	}
}

// TestPoolChangesNoRow: what is in rows of several widths does not depend on the mesh.
func TestPoolChangesNoRow(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for range rounds(60) {
		w := anyWorld(rng)
		w.widen(rng)
		want := w.run(t, 20, nil)
		pool := int(w.cfg.Widest)
		for w.cfg.Rows%(2*pool) == 0 && rng.IntN(2) == 0 {
			pool *= 2
		}
		w.cfg.Mesh, _ = mesh.New(mesh.Sizes{DP: pool, CP: 1, PP: 1, TP: 2, VPP: 1, EP: 1})
		got := w.run(t, 20, nil)
		if len(want.steps) != len(got.steps) {
			t.Fatalf("%d steps on one mesh, %d on another: %+v", len(want.steps), len(got.steps), w.cfg)
		}
		for k, s := range got.steps {
			if !slices.Equal(s.Rows, want.steps[k].Rows) || !slices.Equal(s.Samples(), want.steps[k].Samples()) || !reflect.DeepEqual(s.After, want.steps[k].After) {
				t.Fatalf("step %d has other rows on another mesh: %+v", k, w.cfg)
			}
		}
	}
}

// TestEpochs: over a whole job nothing is lost and nothing is doubled: each sample
// of an epoch is delivered exactly once, up to the source's limit.
func TestEpochs(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range rounds(150) {
		w := anyWorld(rng)
		w.cfg.Epochs, w.cfg.Renormalize = 1+rng.Int64N(3), true
		weights := make([]float64, len(w.cfg.Sources)) // each source has some: else it would not be read to its end
		for i := range weights {
			weights[i] = 0.01 + rng.Float64()
		}
		w.cfg.Schedule = mix.NewSchedule([]mix.Stage{{Weights: weights}})
		h := w.run(t, 1<<40, nil)
		count := map[plan.Ref]int{}
		for _, s := range h.steps {
			for _, r := range s.Samples() {
				count[r]++
			}
		}
		total := 0
		for i, src := range w.cfg.Sources {
			for epoch := range w.cfg.Epochs {
				left := src.Limit
				for b := range src.Blocks {
					seq := epoch*src.Blocks + b
					for index, n := range w.lengths(int32(i), seq) {
						if src.Limit > 0 {
							if left == 0 {
								break
							}
							left--
						}
						total++
						if c := count[plan.Ref{Source: int32(i), Seq: seq, Index: int32(index), Length: n}]; c != 1 {
							t.Fatalf("sample %d of block %d of source %d was delivered %d times, with %+v", index, seq, i, c, w.cfg)
						}
					}
				}
			}
		}
		if len(count) != total || h.ended != int64(len(h.steps)) {
			t.Fatalf("%d samples were delivered, there are %d; the end is at %d of %d", len(count), total, h.ended, len(h.steps))
		}
	}
}

// TestResume: from the position after any step, in a core that knows nothing
// else, the steps after it are the same; and so they are after going back.
func TestResume(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range rounds(60) {
		w := anyWorld(rng)
		h := w.run(t, 25, nil)
		core := plan.New(w.cfg)
		for range 10 {
			if len(h.steps) == 0 {
				break
			}
			from := rng.IntN(len(h.steps))
			state := plan.Start(len(w.cfg.Sources))
			if from > 0 {
				state = h.steps[from-1].After
			}
			if rng.IntN(2) == 0 {
				core = plan.New(w.cfg)
				core.Start()
			}
			effects := core.Apply(plan.Rewind{State: state.Clone()})
			for k := from; k < len(h.steps); {
				var next []plan.Effect
				for _, e := range effects {
					switch e := e.(type) {
					case plan.Want:
						next = append(next, core.Apply(plan.BlockRead{Source: e.Source, Seq: e.Seq, Lengths: w.lengths(e.Source, e.Seq)})...)
					case plan.Publish:
						if k < len(h.steps) && !reflect.DeepEqual(e.Step, h.steps[k]) {
							t.Fatalf("resumed at %d, step %d is %+v, want %+v, with %+v", from, k, e.Step, h.steps[k], w.cfg)
						}
						k++
						next = append(next, core.Apply(plan.Acked{Step: int64(k)})...)
					case plan.Fail:
						t.Fatal(e.Err)
					}
				}
				if effects = next; len(effects) == 0 && k < len(h.steps) {
					t.Fatalf("resumed at %d, the core stands still before step %d", from, k)
				}
			}
		}
	}
}

// TestDigestTwice: a row may be told twice, with the same bytes.
func TestDigestTwice(t *testing.T) {
	core := plan.New(plan.Config{
		Sources: []plan.Source{{Name: "a", Blocks: 1}}, Schedule: mix.NewSchedule([]mix.Stage{{Weights: []float64{1}}}),
		Rows: 2, SequenceLength: 4, MicrobatchSize: 1, Packing: true, Ahead: 1, Window: 1,
	})
	core.Start()
	core.Apply(plan.BlockRead{Seq: 0, Lengths: []int32{4, 4, 4, 4}})
	row := plan.Assembled{Step: 0, Rows: []uint32{1}, Digests: [][32]byte{{1}}}
	if effects := core.Apply(row); len(effects) != 0 {
		t.Fatal(effects)
	}
	if effects := core.Apply(row); len(effects) != 0 {
		t.Fatal("the same digest twice:", effects)
	}
	row.Digests[0][0]++
	effects := core.Apply(row)
	if len(effects) != 1 || !strings.Contains(fmt.Sprint(effects[0]), "assembled twice with different bytes") {
		t.Errorf("another digest for the same row: %v", effects)
	}
}
