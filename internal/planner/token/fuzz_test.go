package token

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	statepb "github.com/millrace-data/millrace/internal/proto/state"
	"github.com/millrace-data/millrace/planner/mesh"
)

// anyPosition is a position in a job with settings and changes to come.
func anyPosition(rng *rand.Rand) (Job, plan.State) {
	base, joined := 1+rng.IntN(8), rng.IntN(2)*rng.IntN(4)
	s := lateState(rng, base+joined, 1+rng.Int64N(1<<rng.IntN(60)), 2+rng.Int64N(1<<rng.IntN(60)))
	limited := make([]bool, base)
	for i := range limited {
		if limited[i] = rng.IntN(2) == 0; limited[i] {
			s.Cursors[i].InEpoch = rng.Int64N(1e6)
		}
	}
	s.Carry, s.Held = s.Carry[:rng.IntN(33)], heldState(rng, s, rng.IntN(2)*rng.IntN(257))
	for n := range joined {
		a := plan.Added{Source: plan.Source{Name: fmt.Sprint("joined ", n), Limit: rng.Int64N(2)}, Share: rng.Uint64N(1 << 32)}
		a.Spec, a.Manifest[n] = fmt.Appendf(nil, `{"name":%q,"files":"x"}`, a.Name), 1
		if a.Limit > 0 {
			s.Cursors[base+n].InEpoch = rng.Int64N(1e6)
		}
		s.Settings.Added = append(s.Settings.Added, a)
	}
	job := anyJob.of(limited)
	anySettings(rng, &s, base)
	anyPending(rng, &s, job)
	return job, s
}

// anySettings makes changes part of a position.
func anySettings(rng *rand.Rand, s *plan.State, base int) {
	set := &s.Settings
	if rng.IntN(2) == 0 { // when some of the sources had not joined
		for range base + rng.IntN(len(s.Cursors)-base+1) {
			set.Weights = append(set.Weights, []float64{rng.Float64(), float64(rng.IntN(100)) / 100, 1e-12}[rng.IntN(3)])
		}
		set.Weights[0]++
		set.Shares = mix.FromWeights(set.Weights)
	}
	for i := range s.Cursors {
		if state := rng.IntN(6); state < 2 {
			set.Out = append(set.Out, int32(i))
			if state == 0 {
				set.Gone = append(set.Gone, int32(i))
			}
		}
	}
	set.Batch = plan.Shape{SequenceLength: rng.Int32N(2) * rng.Int32N(9999), Rows: rng.IntN(2) * rng.IntN(9999)}
	if rng.IntN(2) == 0 {
		set.Mesh = meshOf(mesh.Sizes{DP: 1 + rng.IntN(9), CP: 1 + rng.IntN(2), PP: 1, TP: 1 + rng.IntN(8), VPP: 1, EP: 1})
	}
	for range rng.IntN(4) {
		set.Bans = append(set.Bans, plan.Ban{Source: rng.Int32N(int32(len(s.Cursors))), File: fmt.Sprint("f", rng.IntN(9)), Row: rng.Int64N(1e9)})
		set.Skips = append(set.Skips, [2]int64{rng.Int64N(1e6), 1 + rng.Int64N(9)})
	}
}

// anyPending adds changes to come.
func anyPending(rng *rand.Rand, s *plan.State, job Job) {
	names := job.names(s.Settings.Added)
	for step := s.Step; rng.IntN(3) > 0; step += rng.Int64N(9) {
		c := change.Change{Step: step, Reason: "any"}
		switch rng.IntN(4) {
		case 0:
			c.Weights = map[string]float64{}
			for range 1 + rng.IntN(4) {
				c.Weights[names[rng.IntN(len(names))]] = []float64{1 + rng.Float64(), float64(1+rng.IntN(100)) / 100}[rng.IntN(2)]
			}
		case 1:
			name := fmt.Sprint("to join ", len(names))
			c.Add, names = &change.Add{Source: fmt.Appendf(nil, `{"name":%q}`, name), Weight: 0.5}, append(names, name)
		case 2:
			c.Pause = names[0]
		case 3:
			c.Skip = 1 + rng.Int64N(9)
		}
		s.Pending = append(s.Pending, pendingOf(c))
	}
}

// pendingOf is a change as the core has it, as far as the codec looks at it.
func pendingOf(c change.Change) plan.Change {
	ch := plan.Change{Step: c.Step, Text: []byte(c.String())}
	switch {
	case c.Weights != nil:
		ch.Kind = plan.SetShares
	case c.Add != nil:
		ch.Kind, ch.Add.Spec = plan.AddSource, c.Add.Source
	}
	return ch
}

// state is what a position says, with the changes to come.
func (p *Position) state() plan.State {
	s, _ := p.Resolve(func(b plan.Ban) plan.Ban { return b }, func(_ int, a plan.Added) (plan.Source, error) { return a.Source, nil })
	for _, c := range p.Pending {
		s.Pending = append(s.Pending, pendingOf(c))
	}
	return s
}

// differ says what two positions differ in, "" if in nothing. Weights that are no short
// decimals come back as shares.
func differ(a, b plan.State, tokens bool) string {
	for i := range min(len(a.Cursors), len(b.Cursors)) {
		if tokens && a.Cursors[i].Tokens != b.Cursors[i].Tokens {
			return fmt.Sprintf("tokens of source %d", i)
		}
	}
	switch {
	case !a.Same(b):
		return "positions"
	case !slices.Equal(a.Settings.Skips, b.Settings.Skips):
		return "skips"
	case a.Settings.Weights != nil && b.Settings.Weights != nil && !slices.Equal(a.Settings.Weights, b.Settings.Weights):
		return "weights"
	case !reflect.DeepEqual(a.Pending, b.Pending):
		return "changes to come"
	}
	return ""
}

// FuzzTokenOfPosition: a position is encoded as a token and as a key frame, and comes back.
func FuzzTokenOfPosition(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		job, s := anyPosition(rand.New(rand.NewPCG(seed, 1)))
		data := Encode(job, anyMesh, s, [32]byte{9})
		at, err := Decode(job, data)
		if err != nil || at.Digest != [32]byte{9} || differ(s, at.state(), len(data) <= roomyToken) != "" {
			t.Fatalf("token: %s, %v: %+v became %+v", differ(s, at.state(), true), err, s, at)
		}
		if !slices.Equal(data, Encode(job, anyMesh, at.state(), at.Digest)) && s.Settings.Weights == nil {
			t.Fatal("the same position has another token")
		}
		s.Pending = nil
		if at, err = Decode(job, EncodeFrame(job, s, [32]byte{})); err != nil || differ(s, at.state(), true) != "" {
			t.Fatalf("key frame: %s, %v: %+v became %+v", differ(s, at.state(), true), err, s, at)
		}
	})
}

// ours makes arbitrary bytes a token of a job: fields that are there twice count as
// they are last.
func ours(job Job, data []byte) []byte {
	head, _ := proto.Marshal(&statepb.ResumeToken{Version: Version, Identity: job.Identity[:], Manifest: job.Manifest[:]})
	return seal(append(slices.Clip(data), head...))
}

// TestForgedTokens: settings and changes that no position has are refused, whoever sealed the token.
func TestForgedTokens(t *testing.T) {
	job, column := anyJob.of(make([]bool, 2)), func(values ...uint64) []byte { return appendColumn(nil, values) }
	joined := func(a *statepb.AddedSource) func(*statepb.ResumeToken) {
		return func(m *statepb.ResumeToken) { m.Settings.Added = []*statepb.AddedSource{a} }
	}
	pending := func(change string) func(*statepb.ResumeToken) {
		return func(m *statepb.ResumeToken) { m.Pending = []*statepb.PendingChange{{Json: []byte(change)}} }
	}
	for name, forge := range map[string]func(m *statepb.ResumeToken){
		"nothing":                  nil,
		"shares of too few":        func(m *statepb.ResumeToken) { m.Settings.Shares = column(1 << 32) },
		"shares that wrap around":  func(m *statepb.ResumeToken) { m.Settings.Shares = column(1<<63, 1<<63+1<<32) },
		"weights of too few":       func(m *statepb.ResumeToken) { m.Settings.Weights, _ = appendDecimals(nil, []float64{1}) },
		"a ban of no source":       func(m *statepb.ResumeToken) { m.Settings.Bans = []*statepb.BannedRecord{{Source: 2, File: "a"}} },
		"a share of more than all": joined(&statepb.AddedSource{Yaml: []byte("{}"), Share: 1 << 32, Manifest: make([]byte, 32)}),
		"an entry of several":      joined(&statepb.AddedSource{Yaml: []byte("{}\n- {}"), Manifest: make([]byte, 32)}),
		"a change of the past":     pending(`{"step":4,"pause":"a"}`),
		"a change that cancels":    pending(`{"step":5,"cancel":{"step":5,"pause":"a"}}`),
		"a step beyond":            func(m *statepb.ResumeToken) { m.Step = 1<<63 - 1 },
		"a block beyond":           func(m *statepb.ResumeToken) { m.Cursors = append(column(1<<62, 0), m.Cursors[len(column(0, 0)):]...) },
	} {
		s := plan.Start(2)
		s.Step = 5
		m, body := &statepb.ResumeToken{}, Encode(job, nil, s, [32]byte{9})
		if err := proto.Unmarshal(body[:len(body)-sealBytes], m); err != nil {
			t.Fatal(err)
		}
		m.Settings = &statepb.Settings{}
		if forge != nil {
			forge(m)
		}
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(job, seal(data)); (err == nil) != (forge == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzDecode: whatever bytes a token has, it is refused, or read as a position whose token
// is read as the same.
func FuzzDecode(f *testing.F) {
	for seed := range uint64(30) {
		job, s := anyPosition(rand.New(rand.NewPCG(seed, 1)))
		f.Add(Encode(job, nil, s, [32]byte{9}), len(job.Sources))
	}
	f.Fuzz(func(t *testing.T, data []byte, sources int) {
		job := anyJob.of(make([]bool, 1+sources&7))
		_, _ = Decode(job, data)
		at, err := Decode(job, ours(job, data))
		if err != nil {
			return
		}
		s := at.state()
		again, err := Decode(job, encode(job, nil, s, at.Digest, countBits[:1]))
		if err != nil || differ(s, again.state(), true) != "" {
			t.Fatalf("%s, %v: %+v became %+v", differ(s, again.state(), true), err, s, again)
		}
	})
}

// TestDecodeAllocates: no number in a token makes it take more memory than its bytes are
// worth.
func TestDecodeAllocates(t *testing.T) {
	job := anyJob.of(make([]bool, 4))
	empty := appendColumn(nil, make([]uint64, 4))
	state := slices.Concat(empty, empty, empty, empty, empty)
	for name, m := range map[string]*statepb.ResumeToken{
		"carried": {Cursors: append(state, appendColumn(nil, []uint64{1 << 62})...)},
		"held":    {Cursors: slices.Concat(state, appendColumn(nil, []uint64{0}), empty, empty, empty, empty, []byte{0}, empty, appendColumn(nil, []uint64{60000}))},
		"weights": {Settings: &statepb.Settings{Weights: slices.Concat([]byte{0}, appendColumn(nil, []uint64{1 << 60}), []byte{0})}},
	} {
		m.Digest = make([]byte, 32)
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = Decode(job, ours(job, data))
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 64<<10 {
			t.Errorf("%s: %d bytes of memory for a token of %d, error %v", name, took, len(data), err)
		}
	}
}

// anyRecord has something of everything, or nothing.
func anyRecord(rng *rand.Rand) *Record {
	r := &Record{Plan: [32]byte{byte(rng.Uint32()), 1}}
	n := rng.IntN(9)
	number := func() int64 { return rng.Int64N(1 << (1 + rng.IntN(62))) }
	ref := func(i int) plan.Ref { return plan.Ref{Source: int32(i), Seq: number(), Index: rng.Int32()} }
	limits := rng.Int64N(2)
	for i := range n {
		r.Moves = append(r.Moves, Move{int32(i), number(), rng.Int32(), number(), number(), limits * number()})
		r.Carry = append(r.Carry, Drawn{rng.Int32(), number(), rng.Int32(), rng.Int32(), 0})
		r.Held = append(r.Held, Drawn{rng.Int32(), number(), rng.Int32(), rng.Int32(), number()})
		r.Changes = append(r.Changes, fmt.Appendf(nil, "change %d", i))
		r.Left = append(r.Left, ref(rng.IntN(n)))
		r.Skips = append(r.Skips, Skip{rng.Int32(), number(), "file", number(), "a reason"})
		r.Passed = append(r.Passed, [2]plan.Ref{ref(i), ref(i)})
		r.Parts = append(r.Parts, plan.Part{Substep: rng.Int32(), Units: number(), Ended: [][]int32{nil, {1}, {2, 3}}[rng.IntN(3)]})
		positive, negative := number(), -number()
		r.Deficits = append(r.Deficits, positive+negative)
	}
	if n > 0 {
		r.Parts[n-1].Units = 0
	}
	return r
}

// FuzzRecordOfStep: a record comes back as it was.
func FuzzRecordOfStep(f *testing.F) {
	for seed := range uint64(100) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := anyRecord(rand.New(rand.NewPCG(seed, 2)))
		got, err := DecodeRecord(r.Encode())
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("%+v became %+v, %v", r, got, err)
		}
	})
}

// FuzzDecodeRecord: whatever bytes a record has, it is refused, or read as a record that
// is written and read as the same; and it fits a position, or does not.
func FuzzDecodeRecord(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(anyRecord(rand.New(rand.NewPCG(seed, 2))).Encode(), seed)
	}
	f.Add((&Record{Moves: []Move{{Source: 1, Index: 3, Tokens: 5, Samples: 1}}, Parts: []plan.Part{{Substep: 2, Units: 3}, {Ended: []int32{0}}}}).Encode(), uint64(1))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		r, err := DecodeRecord(data)
		if err != nil {
			return
		}
		again, err := DecodeRecord(r.Encode())
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
		rng := rand.New(rand.NewPCG(seed, 3))
		cfg := &plan.Config{Sources: make([]plan.Source, 4), Grain: []string{"step", "substep"}[seed%2]}
		cfg.Schedule = mix.NewSchedule([]mix.Stage{{Weights: []float64{1, 2, 3, 4}}, {From: 1 << 20, Ramp: "cosine", Over: 1 << 20, Weights: []float64{1, 1, 1, 1}}})
		before := lateState(rng, 4, 1e6, 100)
		for range r.Changes {
			before.Pending = append(before.Pending, plan.Change{Step: before.Step, Kind: plan.UseSchedule})
		}
		for i := range r.Changes {
			before.Pending[i].Text = r.Changes[i]
		}
		if after, err := r.After(cfg, before); err == nil && after.Step != before.Step+1 {
			t.Fatalf("%+v led to step %d", r, after.Step)
		}
	})
}
