package plan_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/planner/mesh"
)

// driver feeds a core: blocks in random order, acknowledgements at once or later, and
// changes on request. Now and then it has the core prepare a step.
type driver struct {
	t       *testing.T
	w       world
	rng     *rand.Rand
	core    *plan.Core
	wanted  []plan.Want
	bans    []plan.Ban
	steps   []*plan.Step
	states  map[int64]plan.State
	made    []plan.Change
	done    int64 // steps to acknowledge
	cancels int   // how many were taken back
	ended   bool

	published func(s *plan.Step)    // may be nil
	unread    func(plan.Want) error // may be nil: all blocks can be read
	failed    error                 // for that
}

func newDriver(t *testing.T, w world, rng *rand.Rand) *driver {
	d := &driver{t: t, w: w, rng: rng, core: plan.New(w.cfg), states: map[int64]plan.State{0: plan.Start(len(w.cfg.Sources))}}
	return d
}

func (d *driver) take(effects []plan.Effect) {
	for len(effects) > 0 {
		e := effects[0]
		effects = effects[1:]
		switch e := e.(type) {
		case plan.Want:
			d.wanted = append(d.wanted, e)
		case plan.Publish:
			d.steps = append(d.steps, e.Step)
			if d.published != nil {
				d.published(e.Step)
			}
			d.states[e.Step.After.Step] = e.Step.After.Clone()
			if d.done = e.Step.Step + 1; d.rng.IntN(2) == 0 {
				effects = append(effects, d.core.Apply(plan.Acked{Step: d.done})...)
			}
		case plan.End:
			d.ended = true
		case plan.Fail:
			if d.failed = e.Err; d.unread != nil {
				return
			}
			d.t.Fatalf("with %+v and %+v: %v", d.w.cfg, d.made, e.Err)
		}
	}
}

// read answers one block that is wanted. Row r of file "f" in a source is every
// sample of place r in its blocks.
func (d *driver) read() {
	i := d.rng.IntN(len(d.wanted))
	want := d.wanted[i]
	d.wanted = append(d.wanted[:i], d.wanted[i+1:]...)
	if d.unread != nil {
		if err := d.unread(want); err != nil {
			d.take(d.core.Apply(plan.BlockUnread{Source: want.Source, Seq: want.Seq, Err: err}))
			return
		}
	}
	ev := plan.BlockRead{Source: want.Source, Seq: want.Seq, Bans: len(d.bans)}
	if int(want.Source) < len(d.w.cfg.Sources) {
		ev.Lengths = d.w.lengths(want.Source, want.Seq)
	} else {
		ev.Lengths = []int32{1, 2, int32(1 + want.Seq%3)}
	}
	for index := range ev.Lengths {
		for _, b := range d.bans {
			if b.Source == want.Source && b.Row == int64(index) {
				ev.Banned = append(ev.Banned, plan.Banned{Index: int32(index), Ban: b.ID})
			}
		}
	}
	d.take(d.core.Apply(ev))
}

func (d *driver) change(ch plan.Change) {
	ch.Step = d.core.Effective(ch.Step)
	if d.core.Check(ch) != nil {
		return
	}
	ch.Text = fmt.Appendf(nil, "%d", d.rng.Uint64())
	d.made = append(d.made, ch)
	if ch.Kind == plan.BanSample {
		d.bans = append(d.bans, ch.Ban)
	}
	d.take(d.core.Apply(plan.Changed{Change: ch}))
}

// cancel takes a change back, if that can be: one of the last.
func (d *driver) cancel() {
	i := len(d.made) - 1 - d.rng.IntN(min(len(d.made), 4))
	if d.made[i].Kind == plan.AddSource || d.core.CheckCancel(d.made[i]) != nil {
		return
	}
	ch := d.made[i]
	d.made = slices.Delete(d.made, i, i+1)
	d.cancels++
	d.take(d.core.Apply(plan.Cancelled{Change: ch}))
}

// anyChange draws a change to a job of n sources.
func (d *driver) anyChange(step int64) plan.Change {
	rng, n := d.rng, len(d.w.cfg.Sources)
	ch := plan.Change{Step: step + rng.Int64N(4), Source: rng.Int32N(int32(n))}
	switch ch.Kind = plan.Kind(1 + rng.IntN(10)); ch.Kind {
	case plan.SetShares:
		var weights []float64
		for range d.core.SourcesAt(d.core.Effective(ch.Step)) {
			weights = append(weights, rng.Float64()+0.01)
		}
		ch.Shares = mix.FromWeights(weights)
	case plan.AddSource:
		ch.Add = plan.Added{Source: plan.Source{Name: fmt.Sprint("added ", len(d.made)), Blocks: 3, Longest: 1}, Share: 1 << 30, Spec: []byte("{}")}
		if d.w.cfg.SequenceLength >= 3 {
			ch.Add.Longest = 3
		}
		if ch.Add.Longest == 1 {
			ch.Kind = plan.UseSchedule
		}
	case plan.Resize:
		ch.Batch = plan.Shape{Rows: 1 + rng.IntN(20), SequenceLength: d.w.cfg.SequenceLength * int32(1+rng.IntN(2))}
	case plan.Remesh:
		if n := 1 + rng.IntN(2); rng.IntN(2) == 0 {
			ch.Mesh = mesh.Sizes{DP: n}
		} else {
			ch.Mesh = mesh.Sizes{TP: n}
		}
	case plan.Skip:
		ch.Steps = 1 + rng.Int64N(3)
	case plan.BanSample:
		ch.Ban = plan.Ban{ID: uint32(len(d.bans)), Source: ch.Source, File: "f", Row: rng.Int64N(5)}
	}
	return ch
}

// run goes on for a number of steps, making changes at random if asked to:
// three a step at most, since a job may read thousands of blocks for one.
func (d *driver) run(steps int, change bool) {
	tries := 0
	for budget := 20000; len(d.steps) < steps && !d.ended && d.failed == nil && budget > 0; budget-- {
		if d.rng.IntN(3) == 0 {
			d.take(d.core.Prepare())
		}
		if change && tries < 3*(len(d.steps)+1) && d.rng.IntN(3) == 0 {
			tries++
			d.change(d.anyChange(int64(len(d.steps))))
			if d.rng.IntN(2) == 0 && len(d.made) > 0 {
				d.cancel()
			}
			continue
		}
		if d.core.Acked() < d.done && (len(d.wanted) == 0 || d.rng.IntN(4) == 0) {
			d.take(d.core.Apply(plan.Acked{Step: d.done}))
			continue
		}
		if len(d.wanted) == 0 {
			d.t.Fatalf("the core stands still before step %d, with %+v and %+v", len(d.steps), d.w.cfg, d.made)
		}
		d.read()
	}
}

// changeable makes a job that changes leave possible: no source ends, none is
// barren, even with a few rows banned.
func changeable(rng *rand.Rand) world {
	w := anyWorld(rng)
	w.most, w.tiny = 30+rng.IntN(10), 0
	w.cfg.Epochs, w.cfg.Grain, w.cfg.Random = 0, []string{"step", "substep", "epoch"}[rng.IntN(3)], rng.IntN(4) == 0
	w.cfg.Seed = rng.Uint64()
	for i := range w.cfg.Sources {
		w.cfg.Sources[i].Blocks += 3
	}
	return w
}

// TestChanges: a job to which changes are made while it runs, and some of them taken back, gives the steps of
// one to which they are made before it starts, and of one that goes on from any
// position in between.
func TestChanges(t *testing.T) {
	kinds, cancels := map[plan.Kind]int{}, 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 5))
		live := newDriver(t, changeable(rng), rng)
		live.take(live.core.Start())
		live.run(25, true)
		for _, ch := range live.made {
			kinds[ch.Kind]++
		}
		cancels += live.cancels
		live.replay(t, plan.Start(len(live.w.cfg.Sources)))
		for range 2 {
			live.replay(t, live.states[rng.Int64N(int64(len(live.steps))+1)])
		}
	}
	if cancels < 50 {
		t.Errorf("%d changes were cancelled only", cancels)
	}
	for kind := plan.SetShares; kind <= plan.BanSample; kind++ {
		if kinds[kind] < 5 {
			t.Errorf("%v was made %d times only", kind, kinds[kind])
		}
	}
}

// replay runs the job again from a position, with all changes made beforehand.
func (d *driver) replay(t *testing.T, from plan.State) {
	again := newDriver(t, d.w, d.rng)
	again.bans, again.made = d.bans, d.made
	from = from.Clone()
	from.Pending = nil
	for _, ch := range d.made {
		if ch.Step >= from.Step {
			from.Pending = insert(from.Pending, ch)
		}
	}
	again.take(again.core.Apply(plan.Rewind{State: from}))
	want := d.steps[from.Step:]
	again.run(len(want), false)
	for k := range want {
		got := again.steps[k]
		if !reflect.DeepEqual(got.Samples(), want[k].Samples()) || !reflect.DeepEqual(got.Rows, want[k].Rows) ||
			!reflect.DeepEqual(got.Placed.Rank, want[k].Placed.Rank) || got.Shape != want[k].Shape || !got.Mesh.Equal(want[k].Mesh) {
			t.Fatalf("from %d, step %d is %+v %v, want %+v %v, with %+v and changes %+v", from.Step, got.Step, got.Shape, got.Samples(), want[k].Shape, want[k].Samples(), d.w.cfg, d.made)
		}
	}
}

func insert(changes []plan.Change, ch plan.Change) []plan.Change {
	at := len(changes)
	for at > 0 && changes[at-1].Step > ch.Step {
		at--
	}
	return append(changes[:at:at], append([]plan.Change{ch}, changes[at:]...)...)
}
