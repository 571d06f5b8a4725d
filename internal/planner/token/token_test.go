package token

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	statepb "github.com/millrace-data/millrace/internal/proto/state"
	"github.com/millrace-data/millrace/planner/mesh"
)

// lateState is a position late in a long job: every source gave about tokens
// tokens out of about blocks blocks, and the carry is full.
func lateState(rng *rand.Rand, sources int, tokens, blocks int64) plan.State {
	around := func(n int64) int64 { return n/2 + rng.Int64N(n+1) }
	s := plan.Start(sources)
	s.Step = 1_500_000
	for i := range s.Cursors {
		s.Cursors[i] = plan.Cursor{
			Seq: around(blocks), Index: rng.Int32N(2000), Tokens: around(tokens),
			Deficit: rng.Int64N(2*8192<<12) - 8192<<12,
		}
	}
	for range 32 {
		src := rng.Int32N(int32(sources))
		s.Carry = append(s.Carry, plan.Ref{
			Source: src, Seq: s.Cursors[src].Seq - rng.Int64N(2), Index: rng.Int32N(2000), Length: 1 + rng.Int32N(8192),
		})
	}
	return s
}

var (
	anyJob  = Job{Name: "a-job-with-a-name-of-thirty-two", Identity: [32]byte{1, 2, 3}, Manifest: [32]byte{4, 5, 6}}
	anyMesh = meshOf(mesh.Sizes{DP: 512, CP: 8, PP: 16, TP: 8, VPP: 2, EP: 1})
)

func meshOf(sizes mesh.Sizes) *mesh.Tree {
	tree, err := mesh.New(sizes)
	if err != nil {
		panic(err)
	}
	return tree
}

// of is a job with sources that have limits, or not.
func (j Job) of(limited []bool) Job {
	j.Sources = nil
	for i, l := range limited {
		j.Sources = append(j.Sources, Source{fmt.Sprintf("a-source-with-a-name-%d", i), l})
	}
	return j
}

// byHand sets the weights of all sources, to decimals such as 0.0132.
func byHand(rng *rand.Rand, s *plan.State) {
	weights := make([]float64, len(s.Cursors))
	for i := range weights {
		weights[i] = float64(1+rng.IntN(400)) / 10000
	}
	s.Settings.Weights, s.Settings.Shares = weights, mix.FromWeights(weights)
}

// halfOut pauses every other source, and drops every fourth.
func halfOut(s *plan.State) {
	for i := 1; i < len(s.Cursors); i += 2 {
		s.Settings.Out = append(s.Settings.Out, int32(i))
		if i%4 == 1 {
			s.Settings.Gone = append(s.Settings.Gone, int32(i))
		}
	}
}

// inEpochs gives all sources a limit of a million samples, and a place in an epoch.
func inEpochs(rng *rand.Rand, s *plan.State) []bool {
	limited := make([]bool, len(s.Cursors))
	for i := range limited {
		limited[i], s.Cursors[i].InEpoch = true, rng.Int64N(1e6)
	}
	return limited
}

// TestTokenSize holds the promise that a token may be saved at every step: 1 KiB
// at ten sources, 4 KiB at 306, also after 10^10 tokens and 10^6 blocks of each,
// with limits and with weights that were set by hand.
func TestTokenSize(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, test := range []struct {
		sources         int
		tokens, blocks  int64
		limits, weights bool
		most            int
	}{
		{1, 1e10, 1e6, false, false, 512}, {10, 1e3, 10, false, false, 1024}, {10, 1e10, 1e6, false, false, 1024},
		{10, 1e13, 1e9, false, false, 1024}, {10, 1e13, 1e9, true, true, 1024},
		{306, 1e6, 100, false, false, 4096}, {306, 1e10, 1e6, false, false, 4096},
		{306, 1e10, 1e6, true, false, 4096}, {306, 1e10, 1e6, false, true, 4096}, {306, 1e10, 1e6, true, true, 4096},
	} {
		worst, lost := 0, 0.0
		for range 50 {
			s, limited := lateState(rng, test.sources, test.tokens, test.blocks), make([]bool, test.sources)
			if test.limits {
				limited = inEpochs(rng, &s)
			}
			if test.weights {
				byHand(rng, &s)
				halfOut(&s)
			}
			token := Encode(anyJob.of(limited), anyMesh, s, [32]byte{7})
			worst = max(worst, len(token))
			got, err := Decode(anyJob.of(limited), token)
			if err != nil {
				t.Fatal(err)
			}
			lost = max(lost, lostOf(t, got.State, s))
		}
		t.Logf("%d sources, %.0e tokens and %.0e blocks each, limits %v, weights %v: %d bytes, tokens within %.2g",
			test.sources, float64(test.tokens), float64(test.blocks), test.limits, test.weights, worst, lost)
		if worst > test.most {
			t.Errorf("%d sources: %d bytes, at most %d were promised", test.sources, worst, test.most)
		}
		if test.sources == 10 && lost > 0 {
			t.Errorf("%d sources: tokens were rounded though there was room", test.sources)
		}
	}
}

// lostOf is the largest relative error of the tokens drawn. All else must be equal.
func lostOf(t *testing.T, got, want plan.State) (lost float64) {
	for i := range want.Cursors {
		g, w := &got.Cursors[i], want.Cursors[i].Tokens
		lost = max(lost, math.Abs(float64(g.Tokens-w))/float64(max(w, 1)))
		if lost > 1.0/128 || (g.Tokens == 0) != (w == 0) {
			t.Fatalf("source %d: %d tokens became %d", i, w, g.Tokens)
		}
		g.Tokens = w
	}
	got.Settings = want.Settings // not read yet
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	return lost
}

// heldState are n samples that wait, at a position.
func heldState(rng *rand.Rand, s plan.State, n int) (held []plan.Held) {
	for range n {
		src := rng.Int32N(int32(len(s.Cursors)))
		held = append(held, plan.Held{
			Ref:   plan.Ref{Source: src, Seq: s.Cursors[src].Seq - rng.Int64N(2), Index: rng.Int32N(2000), Length: 1 + rng.Int32N(1<<20)},
			Since: s.Step - 1 - rng.Int64N(1000),
		})
	}
	return held
}

func TestTokenRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for round := range 500 {
		sources := 1 + rng.IntN(20)
		s := lateState(rng, sources, 1+rng.Int64N(1<<rng.IntN(60)), 2+rng.Int64N(1<<rng.IntN(60)))
		limited := make([]bool, sources)
		for i := range limited {
			if limited[i] = rng.IntN(2) == 0; limited[i] {
				s.Cursors[i].InEpoch = rng.Int64N(1e6)
			}
		}
		s.Carry = s.Carry[:rng.IntN(33)]
		if len(s.Carry) == 0 {
			s.Carry = nil
		}
		s.Held = heldState(rng, s, rng.IntN(2)*rng.IntN(257))
		if round == 0 {
			s = plan.Start(sources)
		}
		token := Encode(anyJob.of(limited), anyMesh, s, [32]byte{9})
		got, err := Decode(anyJob.of(limited), token)
		if err != nil || got.Digest != [32]byte{9} || !reflect.DeepEqual(got.State, s) {
			t.Fatalf("round %d: got %+v, %v; want %+v", round, got, err, s)
		}
	}
}

// TestTokenWeights: weights come back as they were set, as decimals if they are.
func TestTokenWeights(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for _, test := range []struct {
		name    string
		weights []float64
		short   bool
	}{
		{"decimals", []float64{0.0132, 1, 0, 0.3, 12}, true},
		{"whole", []float64{0, 0, 7}, true},
		{"of feedback", []float64{rng.Float64(), rng.Float64(), 1}, false},
		{"tiny", []float64{1e-10, 1}, false},
		{"huge", []float64{1e300, 1}, false},
	} {
		s := plan.Settings{Weights: test.weights, Shares: mix.FromWeights(test.weights)}
		in := packSettings(s)
		shares, weights, err := unpackMix(in, len(test.weights)+2) // two joined since
		if err != nil || !slices.Equal(shares, s.Shares) {
			t.Errorf("%s: shares are %v, %v; want %v", test.name, shares, err, s.Shares)
		}
		if short := in.Weights != nil; short != test.short || short && !slices.Equal(weights, test.weights) {
			t.Errorf("%s: weights are %v (short: %v), want %v (%v)", test.name, weights, short, test.weights, test.short)
		}
	}
	for _, bad := range [][]byte{{1}, {0, 0, 0}, {4, 10, 1, 1, 1, 1}, {0, 2, 3, 0}, {0, 64, 255, 255, 255, 255, 255, 255, 255, 255, 0}} {
		if shares, _, err := unpackMix(&statepb.Settings{Weights: bad}, 3); err == nil {
			t.Errorf("weights %v gave shares %v", bad, shares)
		}
	}
}

// TestTokenStates: what is paused and dropped comes back.
func TestTokenStates(t *testing.T) {
	for _, test := range []struct{ out, gone []int32 }{{}, {[]int32{0}, nil}, {[]int32{2}, []int32{2}}, {[]int32{1, 3, 9}, []int32{1, 9}}} {
		in := packSettings(plan.Settings{Out: test.out, Gone: test.gone})
		if in == nil {
			in = &statepb.Settings{}
		}
		out, gone, err := unpackStates(in, 10)
		if err != nil || !slices.Equal(out, test.out) || !slices.Equal(gone, test.gone) {
			t.Errorf("%v became %v, %v, %v", test, out, gone, err)
		}
	}
	if _, _, err := unpackStates(&statepb.Settings{States: []byte{2, 3}}, 4); err == nil {
		t.Error("a state of 3 was read")
	}
	if s := (plan.Settings{Out: []int32{}}); packSettings(s) != nil { // paused, and resumed
		t.Errorf("settings without a difference to the job's are %v", packSettings(s))
	}
}

// TestTokenPending: changes for steps to come come back in their written form. Weights
// for hundreds of sources take a few hundred bytes.
func TestTokenPending(t *testing.T) {
	id, rng := anyJob.of(make([]bool, 306)), rand.New(rand.NewPCG(7, 7))
	weights := map[string]float64{}
	for i := range 306 {
		weights[id.Sources[i].Name] = float64(rng.IntN(400)) / 10000
	}
	joined := []byte(`{"name":"joined","files":"x/*.txt"}`)
	changes := []change.Change{
		{Step: 7, Weights: weights, Reason: "by hand"},
		{Step: 8, Weights: map[string]float64{id.Sources[3].Name: 0, id.Sources[5].Name: 2}},
		{Step: 8, Add: &change.Add{Source: joined, Weight: 0.1}},
		{Step: 9, Weights: map[string]float64{"joined": 0.25, id.Sources[0].Name: 0.75}},
		{Step: 10, Weights: map[string]float64{"joined": math.Pi}},
		{Step: 11, Pause: "joined"},
	}
	s := lateState(rng, 306, 1e10, 1e6)
	s.Step = changes[0].Step
	for n, c := range changes {
		ch := plan.Change{Step: c.Step, Text: []byte(c.String())}
		if c.Weights != nil {
			ch.Kind = plan.SetShares
		}
		if c.Add != nil {
			ch.Kind, ch.Add.Spec = plan.AddSource, joined
		}
		s.Pending = append(s.Pending, ch)
		if token := Encode(id, anyMesh, s, [32]byte{}); len(token) > roomyToken {
			t.Errorf("with %d changes to come, a token has %d bytes", n+1, len(token))
		}
	}
	got, err := Decode(id, Encode(id, anyMesh, s, [32]byte{}))
	if err != nil || len(got.Pending) != len(changes) {
		t.Fatalf("got %v, %v", got, err)
	}
	for i, c := range changes {
		if got.Pending[i].String() != c.String() {
			t.Errorf("change %d became %s, it was %s", i, got.Pending[i], c)
		}
	}
}

// FuzzTokenSettings: whatever mix, states and weights a token has, they are read or refused.
func FuzzTokenSettings(f *testing.F) {
	weights, _ := appendDecimals(nil, []float64{0.5, 0.25})
	f.Add(weights, appendColumn(nil, []uint64{1 << 31, 1 << 31}), appendColumn(nil, []uint64{0, 1}))
	f.Add(append(appendColumn(nil, []uint64{1, 1, 0, 0}), weights...), []byte{}, []byte{255})
	f.Fuzz(func(t *testing.T, weights, shares, states []byte) {
		in := &statepb.Settings{Weights: weights, Shares: shares, States: states}
		if set, by, err := unpackMix(in, 4); err == nil && set != nil {
			again, _, err := unpackMix(packSettings(plan.Settings{Shares: set, Weights: by}), 4)
			if err != nil || !slices.Equal(again, set) {
				t.Errorf("%v became %v, %v", set, again, err)
			}
		}
		if out, gone, err := unpackStates(in, 4); err == nil && len(out) > 0 {
			o, g, err := unpackStates(packSettings(plan.Settings{Out: out, Gone: gone}), 4)
			if err != nil || !slices.Equal(o, out) || !slices.Equal(g, gone) {
				t.Errorf("%v, %v became %v, %v, %v", out, gone, o, g, err)
			}
		}
		_, _ = unpackPending([]*statepb.PendingChange{{Json: []byte(`{"step":1}`), Weights: weights}}, 0, anyNames)
	})
}

var anyNames = []string{"a", "b", "c", "d"}

func TestTokenTooLong(t *testing.T) {
	_, err := Decode(anyJob, make([]byte, mostToken+1))
	if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "16777217 bytes") {
		t.Errorf("got %v", err)
	}
}

// TestTokenDamage flips every bit of a token and cuts it everywhere.
func TestTokenDamage(t *testing.T) {
	limited := make([]bool, 10)
	token := Encode(anyJob.of(limited), anyMesh, lateState(rand.New(rand.NewPCG(3, 3)), 10, 1e6, 1000), [32]byte{9})
	check := func(what string, damaged []byte) {
		_, err := Decode(anyJob.of(limited), damaged)
		if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for bit := range 8 * len(token) {
		token[bit/8] ^= 1 << (bit % 8)
		check("a bit flipped", token)
		token[bit/8] ^= 1 << (bit % 8)
	}
	for n := range token {
		check("cut", token[:n])
	}
}

func TestTokenOfAnother(t *testing.T) {
	limited := make([]bool, 3)
	s := plan.Start(3)
	for _, test := range []struct {
		name, says string
		change     func(id *Job)
	}{
		{"spec", "sources, mix, batch and seed must be the same", func(id *Job) { id.Identity[0]++ }},
		{"data", "the data of job", func(id *Job) { id.Manifest[0]++ }},
	} {
		job := anyJob.of(limited)
		id := job
		test.change(&id)
		_, err := Decode(id, Encode(job, nil, s, [32]byte{}))
		if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), test.says) {
			t.Errorf("another %s: %v", test.name, err)
		}
	}
}

// TestCursorColumns: cursors are read with and without bits cut off, and with and
// without samples that are held.
func TestCursorColumns(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	limited := make([]bool, 4)
	sizes := map[int]bool{}
	for _, keep := range []int{exact, 9} {
		for _, held := range []int{0, 1, 256} {
			s := lateState(rand.New(rand.NewPCG(8, 8)), 4, 1e10, 1e6)
			s.Held = heldState(rng, s, held)
			data := packState(s, limited, keep)
			got, err := unpackState(data, s.Step, limited)
			if err != nil {
				t.Fatalf("%d bits, %d held: %v", keep, held, err)
			}
			if lost := lostOf(t, got, s); (lost > 0) != (keep < exact) {
				t.Errorf("%d bits, %d held: tokens differ by %g", keep, held, lost)
			}
			sizes[len(data)] = true
		}
	}
	if len(sizes) != 6 {
		t.Errorf("%d sizes of 6 positions", len(sizes))
	}
}

// TestHeldThatCannotBe: numbers of held samples that no position has are refused.
func TestHeldThatCannotBe(t *testing.T) {
	good := plan.Start(1)
	good.Step, good.Cursors[0] = 10, plan.Cursor{Seq: 5, Index: 1}
	for _, test := range []struct {
		held plan.Held
		says string
	}{
		{plan.Held{Ref: plan.Ref{Seq: 5, Length: 7}, Since: 9}, ""},
		{plan.Held{Ref: plan.Ref{Seq: 5, Length: 7}, Since: 10}, "after 10 steps it holds a sample of step 10"},
		{plan.Held{Ref: plan.Ref{Seq: 5, Length: 7}, Since: -1}, "of step -1"},
		{plan.Held{Ref: plan.Ref{Seq: 5}, Since: 9}, "with 0 tokens"},
		{plan.Held{Ref: plan.Ref{Seq: -1, Length: 7}, Since: 9}, "block -1"},
		{plan.Held{Ref: plan.Ref{Seq: 6, Length: 7}, Since: 9}, "block 6"},
	} {
		s := good
		s.Held = []plan.Held{test.held}
		_, err := unpackState(packState(s, []bool{false}, exact), s.Step, []bool{false})
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%+v: %v", test.held, err)
		}
	}
}

// FuzzToken: whatever the cursors of a token are, they are read or refused.
func FuzzToken(f *testing.F) {
	rng := rand.New(rand.NewPCG(4, 4))
	for _, sources := range []int{1, 4} {
		f.Add(packState(lateState(rng, sources, 1e6, 1000), make([]bool, sources), exact), sources, false)
	}
	f.Add(packState(lateState(rng, 4, 1e10, 1e6), make([]bool, 4), 9), 3, false)
	for _, keep := range []int{exact, 9} {
		s := lateState(rng, 4, 1e10, 1e6)
		s.Held = heldState(rng, s, 3)
		f.Add(packState(s, make([]bool, 4), keep), 3, false)
	}
	f.Add([]byte{0, 0, 0, 0, 0, 255}, 1, true)
	f.Fuzz(func(t *testing.T, cursors []byte, sources int, limit bool) {
		sources = 1 + sources&7
		limited := make([]bool, sources)
		for i := range limited {
			limited[i] = limit
		}
		const step = 1_500_000
		s, err := unpackState(cursors, step, limited)
		if err != nil {
			return
		}
		again, err := unpackState(packState(s, limited, exact), step, limited)
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%+v became %+v, %v", s, again, err)
		}
	})
}
