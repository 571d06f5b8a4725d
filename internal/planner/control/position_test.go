package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/planner/mesh"
)

// TestTokenThatCannotBe: what a resume token says is checked as what an operator asks for is. It changes nothing if it
// is refused.
func TestTokenThatCannotBe(t *testing.T) {
	p := started(t)
	wide, err := p.core.job.tree.Change(mesh.Sizes{DP: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		forge func(*token.Position)
		want  string
	}{
		"a mesh": {func(at *token.Position) { at.State.Settings.Mesh = wide }, "says what cannot be"},
		"rows":   {func(at *token.Position) { at.State.Settings.Batch = plan.Shape{Rows: 2_000_000_000} }, "says what cannot be: batch.sequences: 2000000000 rows"},
		"a mesh to come": {func(at *token.Position) {
			at.Pending = []change.Change{{Step: 1, Topology: map[string]int{"dp": 1_000_000}}}
		}, "1000000"},
		"rows to come": {func(at *token.Position) { at.Pending = []change.Change{{Step: 1, Sequences: 2_000_000_000}} }, "batch.sequences: 2000000000 rows"},
		"the second of two": {func(at *token.Position) {
			at.Pending = []change.Change{{Step: 1, Sequences: 8}, {Step: 1, Sequences: 2_000_000_000}}
		}, "batch.sequences: 2000000000 rows"},
		"no source is left": {func(at *token.Position) { at.Pending = []change.Change{{Step: 1, Drop: "web"}} }, "no source with a weight is left"},
		"the last of three": {func(at *token.Position) {
			at.Pending = []change.Change{{Step: 1, Skip: 1}, {Step: 1, Ban: &change.Record{Source: "web", File: "a"}}, {Step: 2, Drop: "web"}}
		}, "no source with a weight is left"},
	} {
		at, err := p.core.positionOf(nil)
		if err != nil {
			t.Fatal(err)
		}
		c.forge(at)
		if _, err := p.core.whole(at); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v (%v), want %q", name, err, fault.ClassOf(err), c.want)
		}
		if n, bans := len(p.core.journal.entries), len(p.core.journal.bans); n+bans != 0 || p.core.failed != nil {
			t.Errorf("%s: %d changes were made, %d records banned, %v", name, n, bans, p.core.failed)
		}
	}
}

// TestChangesOfTokens: changes that a token brings are made as they were, one after the other.
func TestChangesOfTokens(t *testing.T) {
	p := started(t)
	at, err := p.core.positionOf(nil)
	if err != nil {
		t.Fatal(err)
	}
	ban := func(row int64) change.Change {
		return change.Change{Step: 9, Ban: &change.Record{Source: "web", File: "a", Row: row}}
	}
	at.Pending = []change.Change{ban(1), ban(2), ban(1), {Step: 10, Sequences: 4}}
	state, err := p.core.whole(at)
	if err != nil || len(state.Pending) != 4 || len(p.core.journal.bans) != 2 {
		t.Fatalf("%d changes are to come, %d records banned, %v", len(state.Pending), len(p.core.journal.bans), err)
	}
	for i, id := range []uint32{0, 1, 0} {
		if got := state.Pending[i].Ban.ID; got != id {
			t.Errorf("ban %d has the number %d, want %d", i, got, id)
		}
	}
}

// TestOrderOfTokens: of one step the changes are made in the order of the token, as often as it has them, and those of
// the operator that it lacks are made on top. What the journal says leads to the same.
func TestOrderOfTokens(t *testing.T) {
	const x, y, skip = `{"step":9,"weights":{"web":1}}`, `{"step":9,"schedule":true}`, `{"step":9,"skip":1}`
	const early = `{"step":8,"skip":2}`
	cancel := func(ch string) string { return `{"step":9,"cancel":` + ch + `}` }
	for name, c := range map[string]struct{ made, token, want []string }{
		"nothing made":              {nil, []string{x, y, x}, []string{x, y, x}},
		"one of two equal ones":     {[]string{skip}, []string{skip, skip}, []string{skip, skip}},
		"two equal ones":            {[]string{skip, skip}, []string{skip, skip}, []string{skip, skip}},
		"one more of them":          {[]string{skip, skip}, []string{skip}, []string{skip, skip}},
		"the last one":              {[]string{y}, []string{x, y}, []string{x, y}},
		"the first one":             {[]string{x}, []string{x, y}, []string{x, y}},
		"the other way round":       {[]string{y, x}, []string{x, y}, []string{x, y}},
		"on top":                    {[]string{y, x}, []string{y}, []string{y, x}},
		"before":                    {[]string{x, y}, []string{y}, []string{y, x}},
		"steps apart":               {[]string{skip, early}, []string{early, skip}, []string{early, skip}},
		"an early one in between":   {[]string{y}, []string{early, x, y}, []string{early, x, y}},
		"one of two cancelled":      {[]string{skip, skip, cancel(skip)}, []string{skip, skip}, []string{skip}},
		"cancelled, and made again": {[]string{x, y, cancel(x), x}, []string{x, y}, []string{y, x}},
		"an older order":            {[]string{x, cancel(x), x, y}, []string{x, y}, []string{x, y}},
	} {
		p := started(t)
		changes := func(texts []string) (all []change.Change) {
			for _, text := range texts {
				ch, err := change.Parse([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, ch)
			}
			return all
		}
		start := plan.Start(p.core.base())
		for i, ch := range changes(c.made) {
			if ch.Cancel != nil {
				p.core.journal.takeBack(ch)
			} else if err := p.core.resume(&start, []change.Change{ch}, byUser); err != nil {
				t.Fatal(i, err)
			}
		}
		for time := range 2 { // a second rank has the same token
			at, err := p.core.positionOf(nil)
			if err != nil {
				t.Fatal(err)
			}
			at.Pending = changes(c.token)
			state, err := p.core.whole(at)
			var got []string
			for _, ch := range state.Pending {
				got = append(got, string(ch.Text))
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%s, rank %d: to come are %q, want %q (%v)", name, time, got, c.want, err)
			}
			said, err := change.InForce(changes(p.core.journal.made))
			change.Sort(said)
			if !slices.EqualFunc(said, changes(c.want), change.Change.Equal) {
				t.Errorf("%s, rank %d: the journal says %v, want %q (%v)", name, time, said, c.want, err)
			}
		}
	}
}

// TestSourceBeforeOthersOfToken: a source cannot join again, behind changes that the token has before it. Nothing is taken back then.
func TestSourceBeforeOthersOfToken(t *testing.T) {
	p := started(t)
	add := change.Change{Step: 9, Add: &change.Add{Source: []byte(`{"name":"math","files":"math"}`), Weight: 0.5}, Origin: "c.jsonl:1: "}
	p.core.journal.entries = []entry{{add, plan.Change{Step: 9, Kind: plan.AddSource, Text: []byte(add.String())}}}
	at, err := p.core.positionOf(nil)
	if err != nil {
		t.Fatal(err)
	}
	at.Pending = []change.Change{{Step: 9, Weights: map[string]float64{"web": 1}}, add}
	if _, err := p.core.whole(at); fault.ClassOf(err) != fault.User || !strings.HasPrefix(err.Error(), "c.jsonl:1: the change ") || len(p.core.journal.made) > 0 {
		t.Errorf("%v (%v), and the journal has %q", err, fault.ClassOf(err), p.core.journal.made)
	}
}

// TestRefusedTokenLeavesRoom: the sources of a token that is refused are no other token's.
func TestRefusedTokenLeavesRoom(t *testing.T) {
	p := started(t)
	brings := func(name string) string {
		state := plan.Start(2)
		state.Step = 1
		state.Settings.Added = []plan.Added{{Source: plan.Source{Name: name}, Spec: fmt.Appendf(nil, `{"name":%q,"files":%q}`, name, name), Manifest: [32]byte(manifestOf("math"))}}
		p.tokens[name] = token.Encode(p.core.id, p.core.job.tree, state, [32]byte{})
		p.do("join j-" + name + " 0 " + name)
		p.do("admit c0")
		return p.do("indexed l0 " + name)
	}
	if said := brings("forged"); !strings.Contains(said, `the data of source "forged" changed`) {
		t.Errorf("a forged token: %s", said)
	}
	if len(p.core.sources.entries) != 0 || p.core.sources.joined != 0 {
		t.Errorf("it leaves %q", p.core.sources.entries)
	}
	if said := brings("math"); strings.Contains(said, "is another one") || p.core.sources.joined != 1 {
		t.Errorf("an honest token: %s", said)
	}
}

// TestVariablesOfEntries: what came over the wire has none of the planner's variables; the operator's own changes do, and
// so does a log that an earlier build wrote.
func TestVariablesOfEntries(t *testing.T) {
	t.Setenv("MILLRACE_TEST_NAME", "secret")
	const add = `{"step":2,"add":{"source":{"name":"more","files":"${MILLRACE_TEST_NAME}/*.txt"},"weight":0.5}}`
	p := started(t)
	if said := p.do("change a0 " + add); !strings.Contains(said, "it has a ${variable}") || strings.Contains(said, "secret") {
		t.Errorf("a change: %s", said)
	}
	p = newPlayer(t)
	for _, command := range []string{"job dp=1 web", "loader l0", "constructor c0", "indexed l0 web"} {
		p.do(command)
	}
	p.do("log kept 0 0 " + add)
	if p.core.failed != nil || len(p.core.sources.specs) != 2 || !strings.HasSuffix(p.core.sources.specs[1].Files[0], "secret/*.txt") {
		t.Errorf("a log: %v, %+v", p.core.failed, p.core.sources.specs)
	}
}
