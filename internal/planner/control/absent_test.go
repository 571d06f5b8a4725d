package control

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/mesh"
)

// TestAbsent: ranks that did not come are named after a while, once, by the log; by the
// status at once.
func TestAbsent(t *testing.T) {
	tree, err := mesh.New(mesh.Sizes{DP: 4, CP: 1, PP: 1, TP: 4, VPP: 1, EP: 1})
	if err != nil {
		t.Fatal(err)
	}
	spec := &jobspec.Job{}
	spec.Output.BroadcastAt = "tp"
	lag := func(session Session, generation uint64, absent ...uint32) Lag {
		l := Lag{Session: session, Generation: generation, Absent: len(absent)}
		for _, dp := range absent {
			l.AbsentRanks = append(l.AbsentRanks, Rank{DP: dp})
		}
		return l
	}
	p := &Core{cfg: Config{Job: spec}, job: job{tree: tree, generation: 3, positioned: true}, members: newMembers(3)}
	p.members.constructors[0] = &constructor{session: 1, lag: lag(1, 3, 0, 2)}
	p.members.constructors[2] = &constructor{session: 2, lag: lag(2, 3, 1)}
	want := "3 of 4 ranks have not asked for a batch yet: rank dp=0 cp=0 pp=0 tp=0, rank dp=1 cp=0 pp=0 tp=0, rank dp=2 cp=0 pp=0 tp=0"
	if got := p.absent().String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var notes []Note
	at := func(seconds Millis, lines int, said ...Lag) {
		t.Helper()
		p.out.now = nil
		p.tick(seconds * 1000)
		for _, l := range said {
			p.lags(l)
		}
		for _, e := range p.out.now {
			notes = append(notes, e.(Note))
		}
		if len(notes) != lines {
			t.Errorf("after %d s there are %d lines, want %d: %v", seconds, len(notes), lines, notes)
		}
	}
	at(100, 0, lag(1, 3, 0, 2))
	at(109, 0)
	at(110, 1)
	at(700, 1)
	if notes[0].Level != Warn || !strings.Contains(notes[0].Text, want) {
		t.Errorf("the log says %v", notes)
	}
	at(701, 1, lag(2, 3), lag(1, 2, 0, 2)) // the latter is of before a move
	at(702, 1, lag(1, 3, 2))
	at(711, 1)
	at(712, 2)
	if text := (absentees{count: 20, all: 32, ranks: []Rank{{DP: 2}}}).String(); !strings.HasSuffix(text, "tp=0 and 19 more") {
		t.Error(text)
	}
}

// TestUnserved: ranks whose constructor is gone are known, and so is a constructor that missed a few beats.
func TestUnserved(t *testing.T) {
	tree, err := mesh.New(mesh.Sizes{DP: 4, CP: 1, PP: 1, TP: 1, VPP: 1, EP: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := &Core{cfg: Config{Job: &jobspec.Job{}}, job: job{tree: tree}, members: newMembers(2)}
	p.members.constructors[0] = &constructor{session: 1, name: "C0", quiet: true}
	if got := p.unserved(); !slices.Equal(got, []uint32{1, 3}) {
		t.Errorf("without the second constructor, dp=%v are not served", got)
	}
	if h := p.Holdup(); h.Quiet != "C0" || h.Cause != CauseMember {
		t.Errorf("what holds steps up is %+v", h)
	}
	p.members.stands[1].in = p.members.constructors[0]
	if got := p.unserved(); got != nil {
		t.Errorf("where the first one stands in, dp=%v are not served", got)
	}
}
