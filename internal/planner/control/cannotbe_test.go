package control

import "testing"

// started is a job of one rank, which has joined. c0 serves it, c1 is spare.
func started(t *testing.T) *player {
	p := newPlayer(t)
	for _, command := range []string{"job dp=1 web", "loader l0", "constructor c0", "constructor c1", "indexed l0 web", "log kept", "read", "join j0 0", "admit c0", "restart c0", "persisted", "read", "persisted"} {
		p.do(command)
	}
	if p.core.plan == nil || p.core.plan.Planned() == 0 {
		t.Fatal("the job has not begun")
	}
	return p
}

// TestFileNobodyAskedFor: an answer to no question is not kept.
func TestFileNobodyAskedFor(t *testing.T) {
	p := started(t)
	p.core.Apply(FileFound{Source: 1 << 31, Name: "a", Path: "b"})
	if n := len(p.core.sources.found); n != 0 {
		t.Errorf("%d files are kept", n)
	}
}

// TestReportOfStepPlannedBefore: a rank may be done with steps that a planner which took over is to plan again.
func TestReportOfStepPlannedBefore(t *testing.T) {
	p := started(t)
	ask := func(step int64) error {
		for _, e := range p.core.Apply(Ask{ID: p.number("r"), Question: Report{Step: step, StepSeconds: 1}}) {
			if a, ok := e.(Answer); ok {
				return a.Err
			}
		}
		return nil
	}
	planned, furthest := p.core.plan.Planned(), p.core.furthest()
	if planned >= furthest {
		t.Fatalf("%d steps are planned, and %d can have been", planned, furthest)
	}
	for step, good := range map[int64]bool{-1: false, 0: true, planned - 1: true, planned: true, furthest - 1: true, furthest: false} {
		if err := ask(step); (err == nil) != good {
			t.Errorf("step %d: %v", step, err)
		}
	}
}
