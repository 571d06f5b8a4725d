package deliver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// TestWaited: a rank that asks for the same step again and again says how long it has
// waited in all, not since it asked last.
func TestWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := twoRanks(1000)
		var err error
		for range 10 {
			attempt, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err = answer(s, attempt, ask{rank: rank0, generation: 1, step: 3})
			cancel()
		}
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "rank dp=0 cp=0 pp=0 tp=0 waited 600 s for step 3") {
			t.Error(err)
		}
		now, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err = answer(s, now, ask{rank: rank0, generation: 1, step: 4}); !strings.Contains(err.Error(), "waited 0 s for step 4") {
			t.Error(err)
		}
	})
}

// TestWhoIsWaitedFor: of ranks that are equally far, the one that does not wait is named,
// to the planner and to the one that does; a rank that nobody here holds up learns so.
func TestWhoIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := twoRanks(1000)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		heard := make(chan error, 1)
		go func() {
			_, err := answer(s, ctx, ask{rank: rank0, generation: 1, step: 1, acked: 1})
			heard <- err
		}()
		synctest.Wait()
		ack(t, s, rank1, 1) // it is given step 1 and trains
		for _, a := range s.Usage().Slowest {
			if a.Step != 1 || a.Waits != (a.Bucket == 0) {
				t.Errorf("the planner hears %v", a)
			}
		}
		if err := <-heard; !strings.Contains(err.Error(), "the slowest rank here: rank dp=1 cp=0 pp=0 tp=0 is at step 1") {
			t.Error(err)
		}
		now, cancel := context.WithCancel(t.Context())
		cancel()
		ack(t, s, rank1, 2)
		if _, err := answer(s, now, ask{rank: rank0, generation: 1, step: 1, acked: 1}); !strings.Contains(err.Error(), "no rank of this constructor is further behind") {
			t.Error(err)
		}
	})
}

// TestRefusedRankIsNamed: whoever waits for a rank that is refused, and is there, hears which and
// why, and that nothing comes of it; so does the planner. Once it has said nothing for a while it is one that is being
// started again.
func TestRefusedRankIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := twoRanks(1000)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, r := range []Rank{rank0, rank1} {
			answer(s, ended, ask{rank: r, generation: 1})
		}
		ack(t, s, rank1, 3)
		s.Restart(&pb.Restart{Generation: 2, NextStep: 0, Moved: &pb.Moved{By: rank0.wire()}})
		if w := s.Waits(rank0, 1); !w.Ranks || s.Usage().Refused != "" {
			t.Errorf("before it asks: %v", w)
		}
		for range 5 {
			if err := s.Ack(Caller{Rank: rank1, Generation: 1, Acked: 4}); !errors.Is(err, ErrMoved) || fault.ClassOf(err) != fault.User {
				t.Fatal(err)
			}
			time.Sleep(refusedTime)
			w := s.Waits(rank0, 1)
			if w.Ranks || w.IdleMs == 0 || !strings.Contains(w.Reason, "rank dp=1 cp=0 pp=0 tp=0, which is refused: the job was moved to step 0") || s.Usage().Refused == "" {
				t.Errorf("while it asks: %v", w)
			}
		}
		time.Sleep(time.Millisecond)
		if w := s.Waits(rank0, 1); !w.Ranks || s.Usage().Refused != "" {
			t.Errorf("since it does not ask: %v", w)
		}
		s.Ack(Caller{Rank: rank1, Generation: 1, Acked: 4})
		s.Admit(&pb.Admit{Join: 9, Rank: rank1.wire()})
		if w := s.Waits(rank0, 1); !w.Ranks || s.Usage().Refused != "" {
			t.Errorf("since it joined again: %v", w)
		}
	})
}

// TestForsaken: when there has been no planner for a while, ranks that wait for what nobody builds
// are sent to ask it themselves, and later all that wait. What is there they still get, and they
// wait again once there is a planner.
func TestForsaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := twoRanks(1000)
		for step := range uint64(2) {
			s.Plan(planOf(step, 1))
		}
		build(t, s, 0)
		ended, cancel := context.WithCancel(t.Context())
		defer cancel()
		if _, err := s.Claim(ended); err != nil { // step 1 is being built from here on
			t.Fatal(err)
		}
		begin := time.Now()
		sent := func(rank Rank, step uint64) chan time.Duration {
			after := make(chan time.Duration, 1)
			go func() {
				_, err := answer(s, t.Context(), ask{rank: rank, generation: 1, step: step})
				if !errors.Is(err, ErrJoinAgain) || fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "there has been no planner for") || !strings.Contains(err.Error(), "it is cut off") {
					t.Errorf("step %d: %v", step, err)
				}
				after <- time.Since(begin)
			}()
			return after
		}
		for range 3 {
			s.Alone(errors.New("it is cut off"))
		}
		built, unplanned := sent(rank0, 1), sent(rank1, 2)
		if got := <-unplanned; got != aloneTime {
			t.Errorf("a rank that waits for a step that is not planned is sent elsewhere after %v", got)
		}
		if got := <-built; got != aloneBuilding {
			t.Errorf("one that waits for a step that is being built is sent elsewhere after %v", got)
		}
		if got := <-sent(rank1, 3); got != aloneBuilding {
			t.Errorf("one that asks then waits until %v", got)
		}
		if st, err := answer(s, t.Context(), ask{rank: rank0, generation: 1}); err != nil || st.Number != 0 {
			t.Errorf("a step that is there: %v, %v", st, err)
		}
		s.Take(s.job, s.budget)
		waits, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := answer(s, waits, ask{rank: rank0, generation: 1, step: 2}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a planner again: %v", err)
		}
	})
}

// TestUnknownJoin: a rank that joined another life of the service joins again first; what
// it says it is done with does not count here.
func TestUnknownJoin(t *testing.T) {
	s := twoRanks(1000)
	s.Admit(&pb.Admit{Join: 3, Rank: rank0.wire()})
	for _, q := range []ask{
		{rank: rank0, generation: 1, step: 7, acked: 7, join: 5},
		{rank: rank1, generation: 1, step: 7, acked: 7, join: 1},
		{rank: rank1, generation: 9, step: 7, acked: 7, join: 1}, // which would wait for that generation
	} {
		_, err := answer(s, t.Context(), q)
		if fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "has to join again") {
			t.Errorf("%v: %v", q, err)
		}
	}
	if s.acked[rank0] != 0 || s.acked[rank1] != 0 {
		t.Errorf("ranks are at %v", s.acked)
	}
	s.Restart(&pb.Restart{Generation: 2, NextStep: 0})
	s.Take(onMesh(s.job, 1), s.budget)
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := answer(s, now, ask{rank: rank0, step: 0, join: 3}); fault.ClassOf(err) != fault.Lost || strings.Contains(err.Error(), "join again") {
		t.Errorf("a join from before another mesh: %v", err)
	}
}
