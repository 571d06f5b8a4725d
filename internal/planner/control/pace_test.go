package control

import (
	"fmt"
	"slices"
	"testing"
)

// TestSlowLoader: a loader that finishes no block for far longer than blocks take is suspect
// while ranks wait for them, and what it was asked for is dealt to the others. As long as no
// rank waits, or the others are as slow, it is not.
func TestSlowLoader(t *testing.T) {
	for _, c := range []struct {
		name    string
		slow    []string // loaders that stop to answer
		ack     bool     // the rank goes on
		suspect bool
	}{
		{"it costs steps", []string{"l2"}, true, true},
		{"no rank waits", []string{"l2"}, false, false},
		{"all are slow", []string{"l0", "l1", "l2"}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlayer(t)
			for _, line := range []string{"job dp=1 loaders=3 ahead=2 web code docs", "loader l0", "loader l1", "loader l2", "constructor c0",
				"indexed l0 web", "indexed l1 code", "indexed l2 docs", "log", "read", "join j0 0", "admit c0"} {
				p.do(line)
			}
			apply := func(ev Event) {
				for _, e := range p.core.Apply(ev) {
					p.note(e)
				}
			}
			round := func(slow ...string) {
				var late []Read
				for _, r := range p.reads {
					if slices.Contains(slow, p.name(uint64(r.To))) {
						late = append(late, r)
					}
				}
				p.reads = slices.DeleteFunc(p.reads, func(r Read) bool { return slices.Contains(late, r) })
				for _, ev := range p.readAll() {
					apply(ev)
				}
				p.reads = append(p.reads, late...)
				if c.ack {
					for _, ev := range p.events([]string{"ack", "0", fmt.Sprint(p.core.plan.Planned())}, "") {
						apply(ev)
					}
				}
				for _, ev := range p.ticks(500) {
					apply(ev)
				}
			}
			for range 10 {
				round()
			}
			planned := p.core.plan.Planned()
			for range 120 { // a minute
				round(c.slow...)
			}
			var suspect []Member
			for _, m := range p.core.Snapshot().Loaders {
				if m.Suspect != "" {
					suspect = append(suspect, m)
				}
			}
			more := p.core.plan.Planned() - planned
			if got := len(suspect) > 0; got != c.suspect {
				t.Fatalf("after %d steps, %d more: suspects %v", planned, more, suspect)
			}
			if c.suspect && (len(suspect) != 1 || suspect[0].Name != "l2" || more < 10) {
				t.Errorf("%v are suspect, and %d more steps are planned", suspect, more)
			}
		})
	}
}
