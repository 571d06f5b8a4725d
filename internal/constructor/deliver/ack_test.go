package deliver

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// manyRanks is the state of a constructor that serves dp buckets of cp ranks each.
func manyRanks(dp, cp uint32) *Steps {
	s := New()
	job := &pb.ConstructorJob{Mesh: &pb.Mesh{Dp: dp, Cp: cp, Pp: 1, Tp: 1}, Ahead: 8}
	for i := range dp {
		job.Buckets = append(job.Buckets, i)
	}
	s.Take(job, 1<<40)
	s.Restart(&pb.Restart{Generation: 1})
	return s
}

// hold has the steps up to n built.
func hold(t testing.TB, s *Steps, n uint64) {
	t.Helper()
	for k := s.next; k < n; k++ {
		s.Plan(planOf(k, 1))
		if _, err := s.Claim(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Done(&Step{Generation: 1, Number: k, Bytes: 4})
	}
}

// TestLeaves: a rank whose client was closed has left, until it joins again; one that says so of an earlier join has not.
func TestLeaves(t *testing.T) {
	s := manyRanks(1, 2)
	hold(t, s, 1)
	first, second := Rank{}, Rank{CP: 1}
	s.Admit(&pb.Admit{Join: 3, Rank: first.wire()})
	for _, c := range []struct {
		what string
		do   func() error
		left uint32
		slow bool
	}{
		{"at first", func() error { return nil }, 0, false},
		{"one leaves", func() error { return s.Ack(Caller{Rank: first, Generation: 1, Join: 3, Leaves: true}) }, 1, true},
		{"the other one goes on", func() error { return s.Ack(Caller{Rank: second, Generation: 1, Acked: 1}) }, 1, true},
		{"and leaves", func() error { return s.Ack(Caller{Rank: second, Generation: 1, Acked: 1, Leaves: true}) }, 2, true},
		{"the first one joins again", func() error { s.Admit(&pb.Admit{Join: 4, Rank: first.wire()}); return nil }, 1, false},
	} {
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		if u := s.Usage(); u.Left != c.left || u.Slowest[0].Left != c.slow {
			t.Errorf("%s: %d have left, and of the slowest that is %t; want %d, %t", c.what, u.Left, u.Slowest[0].Left, c.left, c.slow)
		}
	}
}

// TestAckOrder: ranks acknowledge in any order, ahead of each other, twice and with old
// positions. What is held, the buckets' positions and what the planner hears are those of the
// slowest ranks.
func TestAckOrder(t *testing.T) {
	const dp, cp, steps = 3, 4, 40
	s := manyRanks(dp, cp)
	rng := rand.New(rand.NewPCG(2, 2))
	at := map[Rank]uint64{}
	lowest := func(of ...uint32) uint64 {
		low := uint64(steps)
		for _, b := range of {
			for i := range uint32(cp) {
				low = min(low, at[Rank{DP: b, CP: i}])
			}
		}
		return low
	}
	told := map[uint32]uint64{}
	for lowest(0, 1, 2) < steps {
		low := lowest(0, 1, 2)
		hold(t, s, low+6)
		r := Rank{DP: uint32(rng.IntN(dp)), CP: uint32(rng.IntN(cp))}
		to := min(low+uint64(rng.IntN(6)), steps)
		ack(t, s, r, to)
		at[r] = max(at[r], to)
		low = lowest(0, 1, 2)
		if want := int64(4 * (s.next - low)); s.held != want || s.base != low {
			t.Fatalf("after %s is at %d, %d bytes are held from step %d on, want %d from %d on", r, to, s.held, s.base, want, low)
		}
		for _, a := range s.takeAcks() {
			if a.Step <= told[a.Bucket] {
				t.Fatalf("bucket %d is reported at %d after %d", a.Bucket, a.Step, told[a.Bucket])
			}
			told[a.Bucket] = a.Step
		}
		for b := range uint32(dp) {
			if told[b] != lowest(b) {
				t.Fatalf("the planner knows bucket %d at %d, it is at %d", b, told[b], lowest(b))
			}
		}
	}
}

// TestAckOfAWaitingRank: a rank that waits for a step says that it is done with an earlier one
// without asking again, and it is that which makes room for the step.
func TestAckOfAWaitingRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := manyRanks(1, 1)
		s.budget = 4
		hold(t, s, 1)
		s.Plan(planOf(1, 1))
		got := make(chan error, 1)
		go func() {
			_, err := answer(s, t.Context(), ask{rank: Rank{}, generation: 1, step: 1})
			got <- err
		}()
		go func() {
			p, err := s.Claim(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			s.Done(&Step{Generation: 1, Number: p.Step, Bytes: 4})
		}()
		synctest.Wait()
		select {
		case err := <-got:
			t.Fatalf("step 1 came before there was room for it: %v", err)
		default:
		}
		ack(t, s, Rank{}, 1)
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}

// TestAckRefused: an acknowledgement of an earlier life of a rank, of an unknown join, or beyond what
// can have been delivered moves nothing, and says so.
func TestAckRefused(t *testing.T) {
	s := manyRanks(1, 2)
	s.Admit(&pb.Admit{Join: 3, Rank: Rank{}.wire()})
	for _, test := range []struct {
		name  string
		c     Caller
		says  string
		class fault.Class
	}{
		{"a client that another one followed", Caller{Generation: 1, Join: 2, Acked: 1}, "one client at a time", fault.User},
		{"a join of before this constructor", Caller{Generation: 1, Join: 4, Acked: 1}, "has to join again", fault.Lost},
		{"a generation to come", Caller{Generation: 2, Join: 3, Acked: 1}, "not heard yet that the job was moved", fault.Lost},
		{"a step that nobody can have", Caller{Generation: 1, Join: 3, Acked: 18}, "limit furthest_step", fault.User},
		{"another constructor's rank", Caller{Rank: Rank{DP: 1}, Generation: 1, Acked: 1}, "does not fetch from this constructor", fault.User},
		{"another spec", Caller{Generation: 1, Acked: 1, Identity: []byte("another")}, "this service runs", fault.User},
	} {
		s.job.Identity = []byte("identity")
		if err := s.Ack(test.c); fault.ClassOf(err) != test.class || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if s.acked[Rank{}] != 0 || s.positions.low != 0 {
		t.Errorf("the rank is at %d", s.acked[Rank{}])
	}
	if err := New().Ack(Caller{}); fault.ClassOf(err) != fault.Lost {
		t.Errorf("before there is a job: %v", err)
	}
}

// TestAckAcrossAMove: the acknowledgement of a rank that stands where the job was moved to, given in the
// name of the generation before, counts in the new one; that of any other rank does not.
func TestAckAcrossAMove(t *testing.T) {
	s := manyRanks(1, 2)
	ack(t, s, Rank{}, 3)
	s.Restart(&pb.Restart{Generation: 2, NextStep: 4})
	if err := s.Ack(Caller{Generation: 1, Acked: 4}); err != nil {
		t.Error(err)
	}
	if err := s.Ack(Caller{Generation: 1, Acked: 5}); err != nil || s.acked[Rank{}] != 5 {
		t.Errorf("a rank that went on is at %d: %v", s.acked[Rank{}], err)
	}
	if err := s.Ack(Caller{Rank: Rank{CP: 1}, Generation: 1, Acked: 6}); fault.ClassOf(err) != fault.User || s.acked[Rank{CP: 1}] != 4 {
		t.Errorf("a rank that was further is at %d: %v", s.acked[Rank{CP: 1}], err)
	}
}

// TestAcksWakeNobodyElse: 4,096 ranks that acknowledge steps wake none of the ranks that wait
// for a later one, and the planner hears of a bucket once a step.
func TestAcksWakeNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dp, cp, waiting = 64, 64, 100
		s := manyRanks(dp, cp)
		if n := s.Fetchers(); n != dp*cp {
			t.Errorf("%d ranks fetch, want %d", n, dp*cp)
		}
		hold(t, s, 4)
		errs := make(chan error, waiting)
		for i := range uint32(waiting) {
			go func() {
				_, err := answer(s, t.Context(), ask{rank: Rank{DP: i % dp, CP: i / dp}, generation: 1, step: 5})
				errs <- err
			}()
		}
		synctest.Wait()
		before, told := s.steps.of[5], 0
		for step := range uint64(4) {
			for i := range uint32(dp * cp) {
				ack(t, s, Rank{DP: i % dp, CP: i / dp}, step+1)
			}
			told += len(s.takeAcks())
		}
		hold(t, s, 5)
		synctest.Wait()
		if now := s.steps.of[5]; now != before || now.waiting != waiting {
			t.Errorf("requests for step 5 were woken by acknowledgements of earlier steps, or by step 4")
		}
		if told != 4*dp || len(s.ready) != 1 {
			t.Errorf("the planner heard of %d buckets, want %d; %d steps are held, want 1", told, 4*dp, len(s.ready))
		}
		hold(t, s, 6)
		for range waiting {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		if len(s.steps.of) != 0 {
			t.Errorf("%d steps have requests that wait", len(s.steps.of))
		}
	})
}

// TestTally: the lowest position is that of the slowest rank, and finding it takes no more
// looks than there are positions.
func TestTally(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	at := make([]uint64, 50)
	p := newTally(0, len(at))
	for range 5000 {
		i := rng.IntN(len(at))
		to := at[i] + 1 + rng.Uint64N(3)
		low := p.low
		rose := p.move(at[i], to)
		at[i] = to
		want := at[0]
		for _, a := range at {
			want = min(want, a)
		}
		if p.low != want || rose != (want > low) {
			t.Fatalf("the lowest of %v is %d, rose %t", at, p.low, rose)
		}
	}
}

// BenchmarkAck is the cost of an acknowledgement, the telling of the planner included, while all
// ranks wait for the next step.
func BenchmarkAck(b *testing.B) {
	for _, dp := range []uint32{4, 64, 1024} {
		b.Run(fmt.Sprintf("ranks=%d", dp*4), func(b *testing.B) {
			s := manyRanks(dp, 4)
			s.job.Ahead = maxAhead
			step := uint64(0)
			i := uint32(0)
			for b.Loop() {
				if i == 0 {
					step++
				}
				if err := s.Ack(Caller{Rank: Rank{DP: i % dp, CP: i / dp}, Generation: 1, Acked: step}); err != nil {
					b.Fatal(err)
				}
				s.takeAcks()
				i = (i + 1) % (4 * dp)
			}
		})
	}
}

// BenchmarkWaits is what each rank costs that waits and hears why, while all do.
func BenchmarkWaits(b *testing.B) {
	for _, dp := range []uint32{4, 64, 1024} {
		b.Run(fmt.Sprintf("ranks=%d", dp*4), func(b *testing.B) {
			s, i := manyRanks(dp, 4), uint32(0)
			for r := range s.acked {
				s.arrive(r, 1, time.Now())
			}
			for b.Loop() {
				s.Waits(Rank{DP: i % dp}, 1)
				i++
			}
		})
	}
}
