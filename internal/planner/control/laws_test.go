package control

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

var (
	lawSeed      = flag.Uint64("law-seed", 0, "the first sequence that TestLaws runs")
	lawSequences = flag.Int("sequences", 0, "sequences that TestLaws runs; default 1000, or 300 with -short")
)

// TestLaws drives cores by random sequences of events: members that come and go in the
// middle of anything, ranks that join from anywhere, changes, cancels and bans, a log that
// is slow or fails. After every event these laws hold:
//
//   - nothing reaches a constructor or an asker before what it depends on is durable;
//   - every question gets one answer, or is withdrawn;
//   - steps done <= steps planned, and the generation never falls;
//   - after a failure nothing happens but that all hear of it;
//   - no order goes to a member that left;
//   - the same events give the same effects;
//   - no question waits that could be answered, and no two constructors serve a DP rank;
//   - the laws of places (places_test.go);
//   - ranks of a constructor that is replaced for their reports are served by another at once;
//   - a planner that goes on with the log of another one plans the same steps, and sends
//     constructors that kept theirs what they lack, in order, and nothing else.
func TestLaws(t *testing.T) {
	sequences, events := 1000, 160
	if testing.Short() {
		sequences = 300
	}
	sequences = cmp.Or(*lawSequences, sequences)
	var answers, moves, failures, lives, kept, replaced int
	seed := *lawSeed
	t.Cleanup(func() { t.Logf("the last: -run TestLaws -law-seed %d -sequences 1", seed) })
	for ; seed < *lawSeed+uint64(sequences); seed++ {
		w := newWorld(t, seed)
		for range events {
			w.step()
		}
		w.finish()
		answers, moves, lives, kept, replaced = answers+w.answered, moves+int(w.generation), lives+w.lives, kept+w.kept, replaced+w.replaced
		if t.Failed() {
			return
		}
		failures += w.failures
		if w.core.stopAt > 0 || w.core.failed != nil && !w.finished {
			failures++
		}
	}
	if sequences >= 100 && (answers < 10*sequences || moves < sequences/2 || failures < sequences/100 || lives < sequences || kept < sequences/10 || replaced < sequences/20) {
		t.Errorf("%d answers, %d moves, %d failures, %d other planners, %d constructors that went on and %d that were replaced in %d sequences: too few to show anything",
			answers, moves, failures, lives, kept, replaced, sequences)
	}
}

// world is a core and a random environment of it.
type world struct {
	*player
	rng  *rand.Rand
	twin *player

	here       []Session // members that are there
	loaders    []Session
	builders   []Session // constructors
	orders     []Effect  // that wait for an answer: Index, Read, Find, Admit, OpenLog, ReadDigest
	persists   []Persist // under way
	steps      map[*plan.Step]bool
	appended   map[*plan.Step]bool
	changes    []change.Change
	cuts       map[Session][]*plan.Step
	refused    []Session // whose sessions end
	silent     map[Session]bool
	quiet      map[Session]bool
	replaced   int               // constructors that a rank's report had replaced
	open       map[uint64]asking // questions
	barrier    uint64            // the last Persist that has to be durable
	durable    uint64
	generation uint64
	saved      [][]byte
	added      int
	positioned bool // before the event
	answered   int
	failed     bool
	finished   bool
	logged     bool // there is a log
	failures   int  // of planners before
	lives      int  // planners that took the place of another
	kept       int  // constructors that went on with what they had
	holds      map[Session]*Held
	unmet      map[Session]bool // constructors that came back with what they kept, and have not heard where the job goes on
	nodes      map[Session]*uint32
	briefs     map[Session][]uint32 // ranks of constructors from their next Restart on
	resent     map[Session]int64    // the next step that a constructor gets again; -1: none
	words      []string
}

// asking is a question that is open.
type asking struct {
	Question
	barrier uint64 // when it was asked
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		player: newPlayer(t), twin: newPlayer(t), rng: rand.New(rand.NewPCG(seed, 1)),
		silent: map[Session]bool{}, quiet: map[Session]bool{}, steps: map[*plan.Step]bool{}, appended: map[*plan.Step]bool{}, cuts: map[Session][]*plan.Step{}, open: map[uint64]asking{},
		saved: [][]byte{nil},
	}
	words := []string{fmt.Sprintf("dp=%d", 1+w.rng.IntN(3)), "constructors=1", "ahead=" + fmt.Sprint(1+w.rng.IntN(3)), "web", "code"}
	if words[0] != "dp=1" {
		words[1] = fmt.Sprintf("constructors=%d", 1+w.rng.IntN(2))
	}
	words = append(words, fmt.Sprintf("loaders=%d", 1+w.rng.IntN(3)), fmt.Sprintf("shadows=%d", w.rng.IntN(3)), fmt.Sprintf("hot=%d", w.rng.IntN(2)))
	words = append(words, fmt.Sprintf("absence=%d", w.rng.IntN(2)), fmt.Sprintf("node=%d", seed%3))
	w.words, w.logged, w.holds = words, w.rng.IntN(4) > 0, map[Session]*Held{}
	w.nodes = map[Session]*uint32{}
	w.briefs, w.resent, w.unmet = map[Session][]uint32{}, map[Session]int64{}, map[Session]bool{}
	w.core, w.twin.core = newCore(t, words), newCore(t, words)
	w.disk.reopen()
	return w
}

// apply gives both cores an event and checks what comes out.
func (w *world) apply(ev Event) {
	w.positioned = w.core.job.positioned
	before := w.readers()
	effects, again := w.core.Apply(ev), w.twin.core.Apply(ev)
	if len(effects) != len(again) {
		show := func(effects []Effect) (text string) {
			for _, e := range effects {
				text += w.show(e)
			}
			return text
		}
		w.t.Fatalf("%T:\n%sand then\n%s", ev, show(effects), show(again))
	}
	for i, e := range effects {
		if a, b := w.player.show(e), w.twin.show(again[i]); a != b {
			w.t.Errorf("%T: %q, then %q", ev, a, b)
		}
		w.check(e)
		w.take(e)
	}
	if p := w.core.plan; p != nil && p.Acked() > p.Planned() {
		w.t.Errorf("%d steps are done and %d planned", p.Acked(), p.Planned())
	}
	if g := w.core.job.generation; g < w.generation {
		w.t.Errorf("generation %d after %d", g, w.generation)
	} else {
		w.generation = g
	}
	w.checkPlaces(ev, before)
	w.checkServed()
	w.checkWaiting(ev)
	for _, s := range w.refused { // it is the shell that ends a session
		w.refused = nil
		w.forget(s)
		m := w.core.members.constructor(s)
		reported := m != nil && m.ended && w.core.plan != nil && w.core.failed == nil && w.core.replaceable(m)
		w.apply(ConstructorLeft{s, fault.Lostf("refused")})
		if reported {
			w.checkReplaced(m)
		}
	}
}

// checkWaiting tries the questions that wait, for none should get further.
func (w *world) checkWaiting(ev Event) {
	c := w.core
	before, held := slices.Clone(c.asks.waiting), len(c.out.held)
	c.out.now, c.asks.raised = nil, ^topics(0)
	c.answer()
	if len(c.out.now) > 0 || len(c.out.held) > held || len(c.asks.waiting) < len(before) {
		for _, a := range before {
			if !slices.Contains(c.asks.waiting, a) {
				w.t.Errorf("question %d (%+v) waited for %b", a.id, w.open[a.id], a.waits)
			}
		}
		w.t.Fatalf("after %T, a question could have got further", ev)
	}
}

// check checks an effect against those before it.
func (w *world) check(e Effect) {
	if w.failed {
		switch e := e.(type) {
		case Failing, Failure, Note, Brief, Placement, Joined, Stop, Refuse:
		case Answer:
			if e.Err == nil {
				w.t.Errorf("an answer after the failure: %s", w.show(e))
			}
		default:
			w.t.Errorf("after the failure: %s", w.show(e))
		}
	}
	if to, ok := recipient(e); ok && !slices.Contains(w.here, to) {
		w.t.Errorf("to a member that left: %s", w.show(e))
	}
	switch e := e.(type) {
	case Deliver:
		cut := w.cuts[e.To]
		if len(cut) == 0 || cut[0].Step != e.Step {
			w.t.Fatalf("step %d is delivered and was not cut", e.Step)
		}
		w.cuts[e.To] = cut[1:]
		w.getsStep(e)
		if w.core.log.kept && !w.steps[cut[0]] && (w.positioned || w.appended[cut[0]]) {
			w.t.Errorf("step %d is delivered before it is durable", e.Step)
		}
	case Restart:
		w.getsRestart(e)
	case Brief:
		w.getsJob(e)
	case Answer:
		w.checkAnswer(e)
	}
}

func (w *world) checkAnswer(e Answer) {
	q, ok := w.open[e.ID]
	if !ok {
		w.t.Fatalf("question %d is answered, and is not open", e.ID)
	}
	delete(w.open, e.ID)
	w.answered++
	if e.Err != nil {
		return
	}
	if q.barrier > w.durable {
		w.t.Errorf("an answer before write %d is durable: %s", q.barrier, w.show(e))
	}
	r, isChange := e.Reply.(ChangeReply)
	if !isChange || !w.core.log.kept {
		return
	}
	made := q.Question.(MakeChange).Change
	if !slices.ContainsFunc(w.changes, func(x change.Change) bool { return x.Step == r.Step && kindOf(x) == kindOf(made) }) {
		w.t.Errorf("%s is answered before it is durable", made)
	}
}

// kindOf is what a change does, without its step and what only the service knows.
func kindOf(c change.Change) string {
	c.Step, c.From, c.Reason = 0, "", ""
	if c.Ban != nil {
		c.Ban = &change.Record{Source: c.Ban.Source, Row: c.Ban.Row}
	}
	return c.String()
}

// take remembers what has to be answered.
func (w *world) take(e Effect) {
	w.getsAnything(e)
	switch e := e.(type) {
	case Index:
		w.orders = append(w.orders, e)
	case Read, Find, Admit, OpenLog, ReadDigest, ReadLog:
		w.orders = append(w.orders, e)
	case Persist:
		w.persists = append(w.persists, e)
		for _, op := range e.Ops {
			if s, ok := op.(AppendStep); ok {
				w.appended[s.Step] = true
			}
			if _, late := op.(SetDigest); !late {
				w.barrier = e.Seq
			}
		}
	case Cut:
		for _, part := range e.For {
			w.cuts[part.To] = append(w.cuts[part.To], e.Step)
		}
	case Refuse:
		if w.core.members.constructor(e.To) == nil {
			w.forget(e.To) // there was no room for it
		} else {
			w.refused = append(w.refused, e.To)
		}
	case Failing:
		w.failed = true
	case Answer:
		switch r := e.Reply.(type) {
		case SaveReply:
			w.saved = append(w.saved, r.Token)
		case JoinReply:
			w.saved = append(w.saved, r.Token)
		}
	}
}

func (w *world) forget(s Session) {
	is := func(x Session) bool { return x == s }
	w.here, w.loaders, w.builders = slices.DeleteFunc(w.here, is), slices.DeleteFunc(w.loaders, is), slices.DeleteFunc(w.builders, is)
	delete(w.cuts, s)
	w.orders = slices.DeleteFunc(w.orders, func(e Effect) bool { to, ok := recipient(e); return ok && to == s })
}

// step does something at random; more often what lets the job go on.
func (w *world) step() {
	n := w.rng.IntN(100)
	switch {
	case w.rng.IntN(60) == 0 && w.logged:
		w.succeed()
	case len(w.loaders) < w.core.cfg.Loaders || n < 1:
		w.join(&w.loaders, w.reader)
	case len(w.builders) <= len(w.core.members.constructors) && n < 20 || n < 2:
		w.join(&w.builders, w.builder)
	case n < 4:
		w.leave()
	case n < 40 && len(w.orders) > 0:
		w.answerOrder()
	case n < 60 && len(w.persists) > 0:
		w.write()
	case n < 75:
		w.train()
	case n < 90:
		w.askAnything()
	case n < 93:
		w.withdrawAny()
	case n < 95:
		w.silence()
	default:
		w.pass(Millis(w.rng.IntN(8000)))
	}
}

func (w *world) join(list *[]Session, event func(Session) Event) {
	w.last++
	s := Session(w.last)
	*list, w.here = append(*list, s), append(w.here, s)
	w.apply(event(s))
}

// silence makes a member silent, or heard again.
func (w *world) silence() {
	s := w.here[w.rng.IntN(len(w.here))]
	if slices.Contains(w.builders, s) && w.rng.IntN(2) == 0 {
		w.quiet[s] = !w.quiet[s]
		w.apply(Quiet{s, !w.quiet[s]})
		return
	}
	if w.silent[s] = !w.silent[s]; w.silent[s] {
		w.apply(Silent{s, 2000})
	} else {
		w.apply(Heard{s})
	}
}

func (w *world) leave() {
	s := w.here[w.rng.IntN(len(w.here))]
	isLoader := slices.Contains(w.loaders, s)
	w.forget(s)
	if isLoader {
		w.apply(LoaderLeft{Session: s})
	} else {
		w.apply(ConstructorLeft{s, fault.Lostf("killed")})
	}
}

// answerOrder answers one of the orders, whichever.
func (w *world) answerOrder() {
	i := w.rng.IntN(len(w.orders))
	e := w.orders[i]
	w.orders = slices.Delete(w.orders, i, i+1)
	switch e := e.(type) {
	case Index:
		if e.Ahead {
			w.apply(SourceOpened{e.To, e.Source})
			return
		}
		if e.Source >= 2 && w.rng.IntN(3) == 0 { // each loader says so once
			w.orders = slices.DeleteFunc(w.orders, func(o Effect) bool { x, ok := o.(Index); return ok && x.Source == e.Source })
			w.apply(LoaderFailed{Source: e.Source, Block: -1, Err: fault.Userf("there are no files")})
			return
		}
		w.apply(Indexed{Session: e.To, Source: e.Source, Blocks: 3, Manifest: manifestOf(fmt.Sprint(e.Source))})
	case Read:
		rng := rand.New(rand.NewPCG(uint64(e.Source), uint64(e.Seq)))
		b := BlockRead{Session: e.To, Block: plan.BlockRead{Source: e.Source, Seq: e.Seq, Bans: len(w.core.journal.bans) - w.rng.IntN(2)}, Records: 4}
		for range 2 + rng.IntN(4) {
			b.Block.Lengths = append(b.Block.Lengths, 1+rng.Int32N(8))
		}
		if rng.IntN(9) == 0 {
			b.Skips = []Skip{{"a", e.Seq, "bad"}}
		}
		w.apply(b)
	case Find:
		w.apply(FileFound{Source: e.Source, Name: e.Name, Path: "/data/" + strings.TrimPrefix(e.Name, "/data/"), Below: 50})
	case Admit:
		w.apply(Admitted{Session: e.To, Join: e.Join, Generation: w.core.job.generation, Acked: w.core.plan.Acked() + w.rng.Int64N(2), Advanced: w.rng.Uint64N(e.Join)})
	case OpenLog:
		if w.logged {
			w.apply(w.disk.opened())
		} else {
			w.apply(LogOpened{})
		}
	case ReadLog:
		w.apply(w.disk.read(e))
	case ReadDigest:
		w.apply(DigestRead{Step: e.Step})
	}
}

func (w *world) askAnything() {
	w.last++
	var q Question
	rank := Rank{DP: uint32(w.rng.IntN(w.core.job.tree.Sizes().DP))}
	token := w.saved[w.rng.IntN(len(w.saved))]
	switch w.rng.IntN(8) {
	case 0, 1:
		q = Join{Rank: rank, Token: token, Beginning: token == nil && w.rng.IntN(4) == 0}
	case 2:
		q = Join{Rank: rank, At: &Position{w.generation, max(w.core.Planned()-w.rng.Int64N(3), 0)}, Silent: []string{"", "c"}[w.rng.IntN(2)]}
	case 3:
		q = Locate{rank}
	case 4:
		q = Save{w.core.Planned() - w.rng.Int64N(3)}
		if w.rng.IntN(3) == 0 {
			q = Past{w.core.Planned() + 1 - w.rng.Int64N(8)}
		}
	default:
		ch := w.anyChange()
		if ch.Topology == nil {
			token = nil
		}
		q = MakeChange{ch, token}
	}
	w.open[w.last] = asking{q, w.barrier}
	w.apply(Ask{w.last, q})
}

func (w *world) anyChange() (c change.Change) {
	c.Step = w.core.Planned() + w.rng.Int64N(6)
	source := []string{"web", "code"}[w.rng.IntN(2)]
	switch w.rng.IntN(9) {
	case 0:
		c.Pause = source
	case 1:
		c.Resume = source
	case 2:
		c.Weights = map[string]float64{"web": 1, "code": float64(w.rng.IntN(3))}
	case 3:
		c.Ban = &change.Record{Source: source, File: "a.jsonl", Row: w.rng.Int64N(60)}
	case 4:
		w.added++
		entry, _ := json.Marshal(map[string]any{"name": fmt.Sprintf("s%d", w.added), "files": "web/more.jsonl"})
		c.Add = &change.Add{Source: entry, Weight: 0.1}
	case 5:
		c.Topology = map[string]int{"dp": 1 + w.rng.IntN(2)}
		c.Step = 0
	case 6:
		c.Skip = 1 + w.rng.Int64N(2)
	default:
		if entries := w.core.journal.entries; len(entries) > 0 {
			x := entries[w.rng.IntN(len(entries))].Change
			if x.Add == nil {
				return change.Change{Step: x.Step, Cancel: &x}
			}
		}
		c.Schedule = true
	}
	return c
}

func (w *world) withdrawAny() {
	if len(w.open) == 0 {
		return
	}
	ids := slices.Sorted(maps.Keys(w.open))
	id := ids[w.rng.IntN(len(ids))]
	delete(w.open, id)
	w.apply(Withdraw{id})
}

// finish ends the job: whoever still waits is answered.
func (w *world) finish() {
	if !w.failed {
		w.finished = true
	}
	w.apply(Failed{fault.Lostf("the end of the test")})
	if len(w.open) > 0 || len(w.core.asks.waiting) > 0 {
		w.t.Errorf("%d questions got no answer", len(w.open))
	}
	w.apply(Tick{w.core.now + tellTime})
}
