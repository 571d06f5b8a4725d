package plan_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/strategy"
)

// follower is a planner that sees the log only: from a key frame on, it goes from
// record to record, and must be where the live one is after every step.
type follower struct {
	d     *driver
	job   token.Job
	state plan.State
	seen  map[string]int // what records had
}

func follow(d *driver) *follower {
	f := &follower{d: d, state: plan.Start(len(d.w.cfg.Sources)), seen: map[string]int{}}
	for _, s := range d.w.cfg.Sources {
		f.job.Sources = append(f.job.Sources, token.Source{Name: s.Name, Limited: s.Limit > 0})
	}
	d.published = f.published
	return f
}

// frame is the state that a key frame gives.
func (f *follower) frame(data []byte) plan.State {
	at, err := token.Decode(f.job, data)
	if err != nil {
		f.d.t.Fatal(err)
	}
	var added []plan.Added
	for _, ch := range f.d.made {
		if ch.Kind == plan.AddSource {
			added = append(added, ch.Add)
		}
	}
	ban := func(b plan.Ban) plan.Ban {
		for _, x := range f.d.bans {
			if x.Source == b.Source && x.File == b.File && x.Row == b.Row {
				return x
			}
		}
		f.d.t.Fatalf("there is no ban %+v", b)
		return b
	}
	state, err := at.Resolve(ban, func(n int, _ plan.Added) (plan.Source, error) { return added[n].Source, nil })
	if err != nil {
		f.d.t.Fatal(err)
	}
	return state
}

// published follows one step, and begins again from a key frame now and then.
func (f *follower) published(s *plan.Step) {
	before, ok := f.d.core.State(s.Step)
	if !ok {
		f.d.t.Fatalf("the position before step %d is gone", s.Step)
	}
	if f.d.rng.IntN(6) == 0 {
		f.state = f.frame(token.EncodeFrame(f.job, before, [32]byte{}))
	}
	f.state.Pending = nil
	for _, ch := range f.d.made {
		if ch.Step >= s.Step {
			f.state.Await(ch)
		}
	}
	if !reflect.DeepEqual(texts(f.state.Pending), texts(before.Pending)) {
		f.d.t.Fatalf("before step %d, %d changes are pending in the log, %d live", s.Step, len(f.state.Pending), len(before.Pending))
	}
	written := token.NewRecord(s, before)
	record, err := token.DecodeRecord(written.Encode())
	if err != nil {
		f.d.t.Fatal(err)
	}
	f.note(s, record)
	if f.state, err = record.After(&f.d.w.cfg, f.state); err != nil {
		f.d.t.Fatalf("step %d: %v", s.Step, err)
	}
	f.compare(s.After)
}

func texts(changes []plan.Change) (texts []string) {
	for _, ch := range changes {
		texts = append(texts, string(ch.Text))
	}
	return texts
}

func (f *follower) compare(live plan.State) {
	same := f.state.Same(live) && reflect.DeepEqual(texts(f.state.Pending), texts(live.Pending)) && reflect.DeepEqual(f.state.Settings.Skips, live.Settings.Skips)
	for i := range live.Cursors {
		same = same && f.state.Cursors[i].Tokens == live.Cursors[i].Tokens
	}
	if !same {
		f.d.t.Fatalf("after %d steps the log gives\n%+v, the planner is at\n%+v, with %+v and %+v", live.Step, f.state, live, f.d.w.cfg, f.d.made)
	}
}

func (f *follower) note(s *plan.Step, r *token.Record) {
	for what, is := range map[string]bool{
		"carried": r.Carry != nil, "held": r.Held != nil, "changes": r.Changes != nil, "left out": r.Left != nil, "passed over": r.Passed != nil,
		"parts": len(r.Parts) > 1, "ended": len(r.Parts) > 0 && r.Parts[0].Ended != nil, "given": s.Given, "joined": len(s.After.Settings.Added) > 0,
		"chance": f.d.w.cfg.Random, "counted": f.d.w.cfg.CountSamples, "limited": len(r.Moves) > 0 && r.Moves[0].InEpoch > 0,
		"by epoch": f.d.w.cfg.Grain == "epoch", "topology": s.After.Settings.Mesh != nil,
	} {
		if is {
			f.seen[what]++
		}
	}
}

// giving is a strategy that gives the shares itself.
func giving(sources int) strategy.Strategy {
	return func(s *strategy.Step) error {
		g := s.Graph(dgraph.Text)
		shares := strategy.Shares{}
		for i := range sources {
			shares = append(shares, uint64(1+(s.Number()+int64(i))%3))
		}
		g.Mix(shares)
		g.Distribute("dp", 1)
		return g.Plan()
	}
}

// TestRecordsRestore: after every step of any job, a key frame before it and the records
// since give the position that the planner is at.
func TestRecordsRestore(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(rounds(200)) {
		rng := rand.New(rand.NewPCG(seed, 9))
		var w world
		if changes := rng.IntN(3) > 0; changes {
			w = changeable(rng)
		} else {
			w = anyWorld(rng)
			w.cfg.Grain, w.cfg.Random = []string{"step", "substep", "epoch"}[rng.IntN(3)], rng.IntN(4) == 0
		}
		if w.cfg.Widest <= 1 && rng.IntN(6) == 0 {
			w.cfg.Strategy = giving(len(w.cfg.Sources))
		}
		d := newDriver(t, w, rng)
		f := follow(d)
		d.take(d.core.Start())
		d.run(25, w.cfg.Epochs == 0 && w.most >= 30)
		for what, n := range f.seen {
			seen[what] += n
		}
	}
	t.Log(fmt.Sprint(seen))
	for _, what := range []string{"carried", "held", "changes", "left out", "passed over", "parts", "ended", "given", "joined", "chance", "counted", "limited", "by epoch", "topology"} {
		if seen[what] < rounds(20)/2 {
			t.Errorf("%d records only have %q", seen[what], what)
		}
	}
}

// TestRecordBytes bounds what a step costs in the log: a difference to the step before is
// small whatever a position takes, and what restores deficits adds a few bytes to it.
func TestRecordBytes(t *testing.T) {
	for _, test := range []struct {
		sources, rows int
		grain         string
		ends          bool // of the sources, half have ended
		given         bool // a strategy gives the shares
		most, restore int  // bytes in the mean: of records, and of them what restores deficits
	}{
		{3, 64, "step", false, false, 250, 0},
		{3, 64, "substep", false, false, 300, 60},
		{3, 64, "step", false, true, 270, 20},
		{306, 512, "step", false, false, 2600, 0},
		{306, 512, "substep", false, false, 2700, 80},
		{306, 512, "step", true, false, 2600, 500},
		{306, 512, "step", false, true, 3900, 1300},
	} {
		w := world{seed: 1, most: 400}
		w.cfg = plan.Config{SequenceLength: 2048, Rows: test.rows, Packing: true, Ahead: 1, Window: 1, Grain: test.grain, Renormalize: true}
		for i := range test.sources {
			w.cfg.Sources = append(w.cfg.Sources, plan.Source{Name: fmt.Sprint(i), Blocks: 1000})
		}
		if test.given {
			w.cfg.Strategy = giving(test.sources)
		}
		weights := make([]float64, 2*test.sources)
		for i := range weights {
			weights[i] = float64(1 + i%7)
		}
		w.cfg.Schedule = mix.NewSchedule([]mix.Stage{{Weights: weights[:test.sources]}, {From: 1, Ramp: "linear", Over: 1000, Weights: weights[test.sources:]}})
		start := plan.Start(test.sources)
		if test.ends {
			w.cfg.Epochs = 1
			for i := 1; i < test.sources; i += 2 {
				start.Cursors[i] = plan.Cursor{Seq: 1000, Tokens: 1}
			}
		}
		d := newDriver(t, w, rand.New(rand.NewPCG(1, 1)))
		bytes, restore := 0, 0
		d.published = func(s *plan.Step) {
			before, _ := d.core.State(s.Step)
			r := token.NewRecord(s, before)
			n := len(r.Encode())
			r.Parts, r.Deficits = nil, nil
			bytes, restore = bytes+n, restore+n-len(r.Encode())
		}
		d.take(d.core.Apply(plan.Rewind{State: start}))
		d.run(20, false)
		n := len(d.steps)
		t.Logf("%d sources, grain %s, half ended %v, shares given %v: %d bytes a step, %d of them to restore deficits", test.sources, test.grain, test.ends, test.given, bytes/n, restore/n)
		if bytes/n > test.most || restore/n > test.restore {
			t.Errorf("more than %d bytes a step, %d of them for deficits, were promised", test.most, test.restore)
		}
	}
}
