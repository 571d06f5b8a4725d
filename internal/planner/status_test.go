package planner

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/planner/control"
)

// TestSilent: a role that is connected and says nothing is named, where a stall is explained.
func TestSilent(t *testing.T) {
	now := time.Hour
	p := &Planner{
		loaders:      map[control.Session]*loaderSession{1: {}, 2: {}},
		constructors: map[control.Session]*constructorSession{3: {}},
	}
	p.loaders[1].heard.Store(int64(now - 12*time.Second))
	p.loaders[2].heard.Store(int64(now - time.Second))
	p.constructors[3].heard.Store(int64(now - silence))
	x := control.Snapshot{
		Loaders:      []control.Member{{Session: 1, Name: "l0", Address: "10.0.0.1:1"}, {Session: 2, Name: "l1", Address: "10.0.0.2:1"}},
		Constructors: []control.Member{{Session: 3, Name: "c1", Address: "10.0.0.3:1"}},
	}
	if got, want := p.silent(x, now), "; loader l0 at 10.0.0.1:1 has said nothing for 12 s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := p.silent(control.Snapshot{State: "running"}, now); got != "; no loader is connected" {
		t.Errorf("without loaders: %q", got)
	}
	got := p.silent(x, now+time.Minute)
	for _, role := range []string{"loader l0 at 10.0.0.1:1 has said nothing for 72 s", "loader l1", "constructor c1 at 10.0.0.3:1"} {
		if !strings.Contains(got, role) {
			t.Errorf("%q does not name %s", got, role)
		}
	}
}
