package planner

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/planner/plan"
)

// TestSilent: a role that is connected and says nothing is named, where a stall is explained.
func TestSilent(t *testing.T) {
	now := time.Now()
	p := &Planner{
		loaders: []*loaderSession{
			{id: "l0", address: "10.0.0.1:1", heard: now.Add(-12 * time.Second)},
			{id: "l1", address: "10.0.0.2:1", heard: now.Add(-time.Second)},
		},
		constructors: []*constructorSession{nil, {id: "c1", address: "10.0.0.3:1", heard: now.Add(-silence)}},
	}
	if got, want := p.silent(now), "; loader l0 at 10.0.0.1:1 has said nothing for 12 s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (&Planner{core: &plan.Core{}}).silent(now); got != "; no loader is connected" {
		t.Errorf("without loaders: %q", got)
	}
	got := p.silent(now.Add(time.Minute))
	for _, role := range []string{"loader l0 at 10.0.0.1:1 has said nothing for 72 s", "loader l1", "constructor c1 at 10.0.0.3:1"} {
		if !strings.Contains(got, role) {
			t.Errorf("%q does not name %s", got, role)
		}
	}
}
