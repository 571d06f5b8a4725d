package control

import "testing"

// TestHoldupLog: while the log has not taken a step, or what a rank that joins waits for, that is what holds the job up,
// and for how long; what is put together, before and after.
func TestHoldupLog(t *testing.T) {
	p := newPlayer(t)
	want := func(when string, cause Cause, taken Millis, text string) {
		t.Helper()
		if h := p.core.Holdup(); h.Cause != cause || h.Log != taken || h.Text != text {
			t.Errorf("%s: %+v, want %s for %d ms: %s", when, h, cause, taken, text)
		}
	}
	play := func(commands ...string) {
		for _, c := range commands {
			p.do(c)
		}
	}
	play("job dp=1 web", "loader l0", "constructor c0", "indexed l0 web", "log kept", "read", "join j0 0", "admit c0", "read")
	want("a step that was planned before a rank came", CauseConstructor, 0, "2 rows of step 0 to be assembled")
	play("assemble 0")
	want("a rank joins", CauseLog, 0, "the log in /log")
	play("tick 3")
	want("3 s later", CauseLog, 3000, "the log in /log")
	play("persisted 1", "tick 2")
	if d, failed := p.core.Unwritten(); d != 2000 || failed {
		t.Errorf("written for %d ms, failed %t; the first write of several ended 2 s ago", d, failed)
	}
	play("persisted")
	want("the log has all", CauseConstructor, 0, "2 rows of step 1 to be assembled")
	play("assemble 1", "ack 0 1", "read", "tick 4")
	want("a step is planned", CauseLog, 4000, "the log in /log")
	play("persisted")
	want("the log has it", CauseConstructor, 0, "2 rows of step 2 to be assembled")
	if d, failed := p.core.Unwritten(); d != 0 || failed {
		t.Errorf("written for %d ms, failed %t, with nothing to do", d, failed)
	}
}

// TestHoldupRemesh: where the topology changes, what is waited for are the ranks that still have steps to do, and then those
// of the next mesh: nothing is put together before they join.
func TestHoldupRemesh(t *testing.T) {
	p := newPlayer(t)
	for _, c := range []string{
		"job dp=1 web", "loader l0", "constructor c0", "indexed l0 web", "log kept", "read", "join j0 0", "admit c0", "read", "persisted",
		`change t0 {"topology": {"dp": 2}}`, "persisted", "assemble 0", "assemble 1", "ack 0 1", "read", "persisted",
	} {
		p.do(c)
	}
	for _, want := range []string{"trainers: rank dp=0 cp=0 pp=0 tp=0 is at step 1", "ranks of tp1 cp1 dp2 pp1 to join, from the state of step 2"} {
		if h := p.core.Holdup(); h.Cause != CauseTrainers || !h.Ranks || h.Text != want {
			t.Errorf("%+v, want %q", h, want)
		}
		p.do("ack 0 2")
	}
}

// TestHoldupEnded: ranks whose clients were closed do not count as slow.
func TestHoldupEnded(t *testing.T) {
	p := newPlayer(t)
	for _, c := range []string{
		"job dp=2 web", "loader l0", "constructor c0", "indexed l0 web", "log kept", "read", "join j0 0", "admit c0", "read", "persisted", "assemble 0", "ack 0 1", "ack 1 1", "read", "persisted", "assemble 1", "ack 1 2", "read", "persisted", "assemble 2",
	} {
		p.do(c)
	}
	slow := Acked{Step: 1, Slowest: "rank dp=0 cp=0 pp=0 tp=0", Left: true}
	lag := Lag{Session: p.core.members.present()[0].session, Slowest: []Acked{slow, {Bucket: 1, Step: 2, Slowest: "rank dp=1 cp=0 pp=0 tp=0"}}}
	for left, want := range map[int]string{
		1: "trainers: rank dp=0 cp=0 pp=0 tp=0 has ended, at step 1: its client was closed, and the others wait for it",
		2: "trainers: all have ended, the first at step 1",
	} {
		lag.Left = left
		p.core.Apply(lag)
		if h := p.core.Holdup(); h.Text != want || h.Slow != (Acked{}) || !h.Ranks {
			t.Errorf("%+v, want %s", h, want)
		}
	}
}

// TestHoldupRoom: a constructor whose buffer is full of what ranks have not finished waits for these, and is not itself what
// holds the job up.
func TestHoldupRoom(t *testing.T) {
	p := newPlayer(t)
	for _, c := range []string{
		"job dp=1 web", "loader l0", "constructor c0", "indexed l0 web", "log kept", "read", "join j0 0", "admit c0", "read", "persisted", "assemble 0", "ack 0 1", "read", "persisted",
	} {
		p.do(c)
	}
	step, _ := p.core.plan.Missing()
	c := p.core.members.present()[0]
	full := Lag{Session: c.session, Generation: p.core.job.generation, Crowded: step + 1, Held: 90, Most: 100, Slowest: []Acked{{Generation: p.core.job.generation, Step: 1, Slowest: "rank dp=0 cp=0 pp=0 tp=0"}}}
	p.core.Apply(full)
	want := "trainers: rank dp=0 cp=0 pp=0 tp=0 is at step 1; c0 has no room for step 1: steps that ranks have not finished hold 90 of 100 bytes of its buffer"
	if h := p.core.Holdup(); h.Cause != CauseTrainers || !h.Ranks || h.Text != want || h.Slow.Slowest != full.Slowest[0].Slowest {
		t.Errorf("with a full buffer: %+v, want %s", h, want)
	}
	full.Crowded++
	p.core.Apply(full)
	if h := p.core.Holdup(); h.Cause != CauseConstructor {
		t.Errorf("with a full buffer for a later step: %+v", h)
	}
}

// TestHoldupLoaders: where no loader is connected, or none says anything, that is what holds up a step for which something is to
// be read or handed out. While another one is there and speaks, it is not.
func TestHoldupLoaders(t *testing.T) {
	p := newPlayer(t)
	want := func(when string, cause Cause, text string) {
		t.Helper()
		if h := p.core.Holdup(); h.Cause != cause || h.Text != text || h.Loaders != (cause == CauseMember) {
			t.Errorf("%s: %+v, want %s: %s", when, h, cause, text)
		}
	}
	play := func(commands ...string) {
		for _, c := range commands {
			p.do(c)
		}
	}
	play("job dp=1 web", "loader l0", "loader l1", "constructor c0", "indexed l0 web", "log kept", "read", "join j0 0", "admit c0", "read", "persisted", "assemble 0", "ack 0 1", "read", "persisted")
	want("all are there", CauseConstructor, "2 rows of step 1 to be assembled")
	play("left l0")
	want("one of two is gone", CauseConstructor, "2 rows of step 1 to be assembled")
	play("silent l1 2")
	want("the other one says nothing", CauseMember, "word of loader l1")
	play("loader l2")
	want("one came", CauseConstructor, "2 rows of step 1 to be assembled")
	play("silent l2 2")
	want("both say nothing", CauseMember, "word of one of 2 loaders, such as l1")
	play("left l1", "left l2")
	want("none is there", CauseMember, "loader 0 of 1 to connect")
	play("loader l3")
	want("one came again", CauseConstructor, "2 rows of step 1 to be assembled")
}
