package control

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// startedWide is a job of four DP ranks, with a log.
func startedWide(t *testing.T) *player {
	p := newPlayer(t)
	for _, command := range []string{"job dp=4 web", "loader l0", "constructor c0", "indexed l0 web", "again", "read", "read", "join j0 0", "admit c0", "persisted", "read", "persisted"} {
		p.do(command)
	}
	if p.core.plan == nil || !p.core.job.positioned || p.core.log.steps() == 0 {
		t.Fatal("the job has not begun")
	}
	return p
}

// meshesFrom are the meshes of the steps from 8 on, of which none is planned.
func meshesFrom(core *plan.Core, state plan.State) string {
	var meshes []string
	for state.Step = 8; state.Step < 12; state.Step++ {
		meshes = append(meshes, core.MeshAt(state).Canonical())
	}
	return strings.Join(meshes, ", ")
}

// TestTopologiesToCome: a change of the topology is one of what the changes before it leave, whichever of them are
// cancelled, for the planner that made it, for one with its log, and for one with a token of it. What could not be
// cut at one of these steps is refused.
func TestTopologiesToCome(t *testing.T) {
	const (
		half     = `{"step":9,"topology":{"dp":2}}`
		split    = `{"step":10,"topology":{"tp":2}}`
		contexts = `{"step":9,"topology":{"cp":2}}`
	)
	without := func(ch string) string { return `{"cancel":` + ch + `}` }
	const dp4, dp2, tp2 = "tp1 cp1 dp4 pp1", "tp1 cp1 dp2 pp1", "tp2 cp1 dp4 pp1"
	for name, c := range map[string]struct {
		changes []string
		want    string // the meshes of steps 8 to 11
		refused string // the last change
	}{
		"none is cancelled": {[]string{half, split}, dp4 + ", " + dp2 + ", tp2 cp1 dp2 pp1, tp2 cp1 dp2 pp1", ""},
		"the first":         {[]string{half, split, without(half)}, strings.Join([]string{dp4, dp4, tp2, tp2}, ", "), ""},
		"the last":          {[]string{half, split, without(split)}, strings.Join([]string{dp4, dp2, dp2, dp2}, ", "), ""},
		"one in the middle": {[]string{half, split, `{"step":11,"topology":{"pp":2}}`, without(split)}, strings.Join([]string{dp4, dp2, dp2, "tp1 cp1 dp2 pp2"}, ", "), ""},
		"made again":        {[]string{half, split, without(half), without(split), half}, strings.Join([]string{dp4, dp2, dp2, dp2}, ", "), ""},
		"of the same step":  {[]string{half, `{"step":9,"topology":{"tp":2}}`, without(half)}, strings.Join([]string{dp4, tp2, tp2, tp2}, ", "), ""},
		"another needs it": {[]string{contexts, `{"step":10,"topology":{"ep":8}}`, without(contexts)}, "",
			`the change "topology" of step 10 builds on it, so that it has to be cancelled first: without it, mesh: ep 8 does not divide`},
		"one before it":                {[]string{split, half}, "", "the topology changes at step 10 already, to " + tp2},
		"rows for a mesh that is gone": {[]string{contexts, `{"step":8,"sequence_length":10}`}, "", `it does not go with the change "topology" of step 9`},
		"rows for a mesh to come":      {[]string{contexts, `{"step":11,"topology":{"cp":1}}`, `{"step":10,"sequence_length":10}`}, "", "10 is not a multiple of 2 * cp = 4"},
		"a mesh for rows to come":      {[]string{`{"step":8,"sequence_length":10}`, `{"step":10,"sequence_length":12}`, contexts}, "", "10 is not a multiple of 2 * cp = 4"},
	} {
		t.Run(name, func(t *testing.T) {
			p := startedWide(t)
			for i, ch := range c.changes {
				said := p.do(fmt.Sprintf("change a%d %s", i, ch)) + p.do("persisted")
				if refused := i == len(c.changes)-1 && c.refused != ""; strings.Contains(said, "log <- change") == refused || !strings.Contains(said, c.refused) && refused {
					t.Fatalf("%s: %s, want %q", ch, said, c.refused)
				}
			}
			if c.refused != "" {
				return
			}
			state, _ := p.core.plan.State(p.core.plan.Planned())
			if got := meshesFrom(p.core.plan, state); got != c.want {
				t.Errorf("the meshes are %s, want %s", got, c.want)
			}
			at, err := token.Decode(p.core.id, token.Encode(p.core.id, p.core.job.tree, state, p.core.root()))
			if err != nil {
				t.Fatal(err)
			}
			other := startedWide(t)
			if state, err = other.core.whole(at); err != nil {
				t.Fatal(err)
			}
			if got := meshesFrom(other.core.plan, state); got != c.want {
				t.Errorf("from a token the meshes are %s, want %s", got, c.want)
			}
			for _, command := range []string{"planner", "loader l1", "constructor d0", "indexed l1 web", "again", "readlog"} {
				p.do(command)
			}
			state, _ = p.core.plan.State(p.core.plan.Planned())
			if got := meshesFrom(p.core.plan, state); got != c.want {
				t.Errorf("from the log the meshes are %s, want %s", got, c.want)
			}
		})
	}
}
