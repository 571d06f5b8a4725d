package deliver

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// TestTrainerSays: a client's waits add up over requests that overtake each other, over joins of the same client,
// and over clients of the same rank, of which each is heard of from its first request on.
func TestTrainerSays(t *testing.T) {
	var x trainer
	for i, c := range []struct {
		join   uint64
		waited time.Duration
		want   time.Duration
	}{
		{1, 0, 0}, {1, 2, 2}, {1, 5, 5}, {1, 3, 5}, {2, 6, 6}, {1, 5, 6}, {2, 6, 6},
		{3, 0, 6}, {3, 4, 10}, {3, 1, 10}, {4, 1, 10}, {4, 3, 12},
	} {
		x.say(c.join, c.waited*time.Second)
		if x.total != c.want*time.Second {
			t.Errorf("after request %d the trainer has waited %v, want %v s", i, x.total, int64(c.want))
		}
	}
}

// TestTrainerShare: a wait that goes on counts before its client says so, and not twice; one that is said at once for many
// seconds counts for as many; what is older than the window is forgotten.
func TestTrainerShare(t *testing.T) {
	now := time.Unix(1000, 0)
	var l looks
	x := trainer{began: now}
	look := func(goesOn time.Duration) {
		now = now.Add(time.Second)
		from, dt, ok := l.next(now)
		if !ok {
			t.Fatal("it is too early for a look after a second")
		}
		x.count(min(dt, time.Second), goesOn)
		x.mark(l.last, from, l.times[from], now)
	}
	near := func(what string, want float64) {
		t.Helper()
		if math.Abs(x.share-want) > 0.001 {
			t.Errorf("%s: share %.3f, want %.3f", what, x.share, want)
		}
	}
	x.say(1, 0)
	for i := range 20 { // it works a quarter of each second, and says so
		x.say(1, x.said+750*time.Millisecond)
		look(0)
		near(fmt.Sprintf("three quarters, after %d s", i+1), 0.75)
	}
	before := x.total
	for s := range 30 { // one wait, of which its client says nothing until it is over
		look(time.Duration(s+1) * time.Second)
	}
	near("a wait that goes on", 1)
	x.say(1, x.said+30*time.Second)
	if x.total != before+30*time.Second || x.counted != x.total {
		t.Errorf("of %v, %v are counted", x.total, x.counted)
	}
	for s := range 10 {
		look(0)
		near(fmt.Sprintf("and is not counted twice, after %d s", s+1), 0.9-0.1*float64(s))
	}
	x.say(1, x.said+20*time.Second) // of a step of 40 s
	for range 15 {
		look(0)
	}
	near("said at once", 1)
	if _, _, ok := l.next(now.Add(waitLook / 2)); ok {
		t.Error("there are more looks than are kept")
	}
}

// TestWaitAfterASlowStart: the wait for the first batch, which a client leaves out, hides no later one; nor does what it waited
// elsewhere count here.
func TestWaitAfterASlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := manyRanks(1, 1)
		r := Rank{}
		share := func(seconds int, waited time.Duration) float64 {
			t.Helper()
			for range seconds {
				time.Sleep(time.Second)
				s.mu.Lock()
				if waited >= 0 {
					s.hearWait(Caller{Rank: r, Join: 1, Waited: uint64(waited.Microseconds()) + 1})
				}
				s.lookAtTrainers(time.Now())
				s.mu.Unlock()
			}
			return s.trainers[r].share
		}
		told := 20 * time.Minute // of another constructor's, by a client that joins again here
		s.mu.Lock()
		s.hearWait(Caller{Rank: r, Join: 1, Waited: uint64(told.Microseconds()) + 1})
		s.lookAtTrainers(time.Now())
		s.mu.Unlock()
		if got := share(20, told); got != 0 {
			t.Errorf("what it waited elsewhere counts: share %.2f", got)
		}

		s.mu.Lock()
		s.hearWait(Caller{Rank: r, Join: 2, Waited: 1}) // another client
		s.mu.Unlock()
		s.arrive(r, 0, time.Now())
		if got := share(30, -1); got < 0.99 {
			t.Errorf("it waits for its first batch: share %.2f, want 1", got)
		}
		s.mu.Lock()
		s.waiting[r].open = 0
		s.hearWait(Caller{Rank: r, Join: 2, Waited: 2})
		s.mu.Unlock()
		if got := share(20, -1); got != 0 {
			t.Errorf("it has what it needs: share %.2f, want 0", got)
		}
		s.mu.Lock()
		s.waiting[r] = nil
		s.mu.Unlock()
		s.arrive(r, 0, time.Now())
		if got := share(5, -1); got < 0.49 {
			t.Errorf("it has waited for 5 s of 10: share %.2f", got)
		}
	})
}

// TestToldWhileItWaits: of a wait that goes on, what the client has told counts once: the constructor counts from then on.
func TestToldWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := manyRanks(1, 1)
		r := Rank{}
		s.arrive(r, 0, time.Now())
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hearWait(Caller{Rank: r, Join: 1, Waited: 1})
		s.lookAtTrainers(time.Now())
		x := s.trainers[r]
		for range 4 {
			time.Sleep(time.Second)
			s.hearWait(Caller{Rank: r, Join: 1, Waited: uint64(x.said.Microseconds()) + 1e6 + 1})
			s.hearWait(Caller{Rank: r, Join: 1, Waited: 1}) // of before
		}
		if goesOn := s.goesOn(r, time.Now()); goesOn != 0 || x.said != 4*time.Second {
			t.Errorf("beside the %v that it said, the wait goes on for %v", x.said, goesOn)
		}
		time.Sleep(time.Second)
		if goesOn := s.goesOn(r, time.Now()); goesOn != time.Second {
			t.Errorf("a second after its last word the wait goes on for %v", goesOn)
		}
	})
}
