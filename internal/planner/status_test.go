package planner

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/mesh"
)

// TestAbsent: ranks that did not come are named after a while, once, by the log; by the
// status at once.
func TestAbsent(t *testing.T) {
	var log strings.Builder
	tree, err := mesh.New(mesh.Sizes{DP: 4, CP: 1, PP: 1, TP: 4, VPP: 1, EP: 1})
	if err != nil {
		t.Fatal(err)
	}
	job := &jobspec.Job{}
	job.Output.BroadcastAt = "tp"
	usage := func(generation uint64, absent ...uint32) *pb.ConstructorUsage {
		u := &pb.ConstructorUsage{Generation: generation, Absent: uint32(len(absent))}
		for _, dp := range absent {
			u.AbsentRanks = append(u.AbsentRanks, &pb.Coordinates{Dp: dp})
		}
		return u
	}
	c, d := &constructorSession{usage: usage(3, 0, 2)}, &constructorSession{usage: usage(3, 1)}
	p := &Planner{opts: Options{Job: job, Log: slog.New(slog.NewTextHandler(&log, nil))}, tree: tree, generation: 3, positioned: true, constructors: []*constructorSession{c, nil, d}}
	want := "3 of 4 ranks have not asked for a batch yet: rank dp=0 cp=0 pp=0 tp=0, rank dp=1 cp=0 pp=0 tp=0, rank dp=2 cp=0 pp=0 tp=0"
	if got := p.absent().String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	start := time.Now()
	at := func(seconds, lines int) {
		t.Helper()
		p.noteAbsent(start.Add(time.Duration(seconds) * time.Second))
		if n := strings.Count(log.String(), "\n"); n != lines {
			t.Errorf("after %d s the log has %d lines, want %d:\n%s", seconds, n, lines, log.String())
		}
	}
	at(0, 0)
	at(9, 0)
	at(10, 1)
	at(600, 1)
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), want) {
		t.Errorf("the log says\n%s", log.String())
	}
	c.usage, d.usage = usage(2, 0, 2), usage(3) // the former is of before a move
	at(601, 1)
	c.usage = usage(3, 2)
	at(602, 1)
	at(611, 1)
	at(612, 2)
	if text := (absentees{count: 20, all: 32, ranks: c.usage.AbsentRanks}).String(); !strings.HasSuffix(text, "tp=0 and 19 more") {
		t.Error(text)
	}
}

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
