package deliver

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// TestFurthestStep: a step that no rank can come to while the slowest is where it is, is refused
// at once, with the limit's name.
func TestFurthestStep(t *testing.T) {
	for ahead, furthest := range map[uint32]uint64{8: 17, 1: 3, 0: 2*maxAhead + 1} {
		s := twoRanks(100)
		s.job.Ahead = ahead
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, step := range []uint64{furthest + 1, 1 << 40, ^uint64(0)} {
			_, err := answer(s, ended, ask{rank: rank0, generation: 1, step: step})
			if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "limit furthest_step") {
				t.Errorf("%d ahead, step %d: %v", ahead, step, err)
			}
		}
		if _, err := answer(s, ended, ask{rank: rank0, generation: 1, step: furthest}); fault.ClassOf(err) != fault.Lost {
			t.Errorf("%d ahead, step %d does not wait: %v", ahead, furthest, err)
		}
	}
}

// TestFurthestOfTakenAlong: a rank that was taken along goes on from where it is, however far behind the job begins again.
func TestFurthestOfTakenAlong(t *testing.T) {
	s := twoRanks(1000)
	s.job.Ahead = 4
	s.Admit(&pb.Admit{Join: 1, Rank: rank0.wire()})
	s.Enter(1)
	for acked := range uint64(3) {
		if err := s.Ack(Caller{Rank: rank0, Generation: 1, Join: 1, Acked: 4 * acked}); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	answer(s, ended, ask{rank: rank0, generation: 1, step: 9, acked: 8, join: 1})
	s.Restart(&pb.Restart{Generation: 2, NextStep: 0, Since: 1}) // no: it entered by join 1
	if _, err := answer(s, ended, ask{rank: rank0, generation: 1, step: 9, acked: 8, join: 1}); !errors.Is(err, ErrMoved) {
		t.Errorf("a rank that does not go along: %v", err)
	}

	s.Admit(&pb.Admit{Join: 3, Rank: rank0.wire(), Step: 8}) // the planner says that it does
	s.Enter(3)
	for step, want := range map[uint64]fault.Class{9: fault.Lost, 13: fault.Lost, 14: fault.User, 1 << 40: fault.User} {
		if _, err := answer(s, ended, ask{rank: rank0, generation: 2, step: step, acked: 8, join: 3}); fault.ClassOf(err) != want {
			t.Errorf("step %d of a rank at step 8: %v, want class %v", step, err, want)
		}
	}
	s.Admit(&pb.Admit{Join: 4, Rank: rank1.wire()})
	s.Restart(&pb.Restart{Generation: 3, NextStep: 0, Since: 2})
	if err := s.Ack(Caller{Rank: rank0, Generation: 2, Join: 3, Acked: 12}); !errors.Is(err, ErrMoved) {
		t.Errorf("a rank that entered where it stood: %v", err)
	}
}

// TestWaitingRequests: of one rank the newest requests wait, and of all no more than the limit.
// Those that are refused hear its name.
func TestWaitingRequests(t *testing.T) {
	s := twoRanks(100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const asked = 200
	refused := make(chan error, asked)
	var all sync.WaitGroup
	for range asked {
		all.Go(func() {
			if _, err := answer(s, ctx, ask{rank: rank0, generation: 1}); err != nil {
				refused <- err
			}
		})
	}
	for range asked - maxWaitingOfRank {
		if err := <-refused; fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "limit max_waiting_of_rank") {
			t.Errorf("a request too many: %v", err)
		}
	}
	s.Plan(planOf(0, 1))
	if _, err := s.Claim(ctx); err != nil {
		t.Fatal(err)
	}
	other := make(chan error, 1)
	go func() { _, err := answer(s, ctx, ask{rank: rank1, generation: 1}); other <- err }()
	s.Done(&Step{Generation: 1})
	if err := <-other; err != nil {
		t.Errorf("another rank, whose requests are few: %v", err)
	}
	all.Wait()
	if s.requests.all != 0 || len(s.requests.of) != 0 || len(refused) > 0 {
		t.Errorf("after all were answered %d wait, of %d ranks, and %d more were refused", s.requests.all, len(s.requests.of), len(refused))
	}
}

// TestWaitingRequestsOfAll: ranks that are made up wait up to a limit, until it is known that
// there are none.
func TestWaitingRequestsOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // all wait before any time passes, after which ranks are sent away
		s := New() // it has no job yet
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		errs := make(chan error, maxWaiting+10)
		for i := range maxWaiting + 10 {
			go func() { _, err := answer(s, ctx, ask{rank: Rank{DP: uint32(i)}}); errs <- err }()
		}
		for range 10 {
			if err := <-errs; fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "limit max_waiting") {
				t.Errorf("a request too many: %v", err)
			}
		}
		cancel()
		for range maxWaiting {
			if err := <-errs; strings.Contains(err.Error(), "limit") {
				t.Errorf("one of those that waited: %v", err)
			}
		}
		if s.requests.all != 0 {
			t.Errorf("%d wait", s.requests.all)
		}
	})
}
