package constructor

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestDoubts: a loader that is overtaken again and again is left out for a while, longer each
// time, unless it is the only one.
func TestDoubts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(never, 10*time.Millisecond, 10*time.Millisecond)
		get := func(when string, slow bool) {
			t.Helper()
			by, took, err := b.get(t.Context(), 7)
			if err != nil || by[0] == 0 || (took > 100*time.Millisecond) != slow {
				t.Errorf("%s: %v gave it after %v, %v", when, by, took, err)
			}
		}
		for range overtakenTimes {
			get("at first", true)
		}
		get("when it is left out", false)
		b.place() // a placement does not change that
		get("by a new placement", false)
		time.Sleep(firstDoubt)
		for range overtakenTimes {
			get("asked again", true)
		}
		time.Sleep(firstDoubt)
		get("left out for longer", false)
		time.Sleep(firstDoubt)
		b.loaders[0].takes = 20 * time.Millisecond
		if by, took, err := b.get(t.Context(), 7); err != nil || by[0] != 0 {
			t.Errorf("when it answers again: %v gave it after %v, %v", by, took, err)
		}
		alone := newBench(time.Second)
		alone.peers.doubt("l0.0")
		if by, _, err := alone.get(t.Context(), 7); err != nil || by[0] != 0 {
			t.Errorf("the only one: %v, %v", by, err)
		}
		b.attempts.Wait()
	})
}
