package control

import (
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
	p := newPlayer(t)
	for _, command := range []string{"job dp=1 web", "loader l0", "constructor c0", "indexed l0 web", "log kept", "read", "join j0 0"} {
		p.do(command)
	}
	if p.core.plan == nil {
		t.Fatal("the job has not begun")
	}
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
	} {
		at, err := p.core.positionOf(nil)
		if err != nil {
			t.Fatal(err)
		}
		c.forge(at)
		if _, err := p.core.whole(at); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v (%v), want %q", name, err, fault.ClassOf(err), c.want)
		}
		if n := len(p.core.journal.entries); n != 0 || p.core.failed != nil {
			t.Errorf("%s: %d changes were made, %v", name, n, p.core.failed)
		}
	}
}
