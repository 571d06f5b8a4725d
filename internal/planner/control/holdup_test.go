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
