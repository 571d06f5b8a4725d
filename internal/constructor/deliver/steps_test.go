package deliver

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// twoRanks is the state of a constructor that serves two DP ranks.
func twoRanks(budget int64) *Steps {
	s := New()
	s.Take(&pb.ConstructorJob{Buckets: []uint32{0, 1}, Mesh: &pb.Mesh{Dp: 2, Cp: 1, Pp: 1, Tp: 1}}, budget)
	s.Restart(&pb.Restart{Generation: 1, NextStep: 0})
	return s
}

func planOf(step uint64, tokens ...uint32) *pb.StepPlan {
	return &pb.StepPlan{Generation: 1, Step: step, SampleLength: tokens}
}

var rank0, rank1 = Rank{}, Rank{DP: 1}

// TestAbsent: ranks are absent until they ask, and again once they joined again or the
// job was moved.
func TestAbsent(t *testing.T) {
	s := twoRanks(100)
	want := func(when string, names ...string) {
		t.Helper()
		u := s.Usage()
		var got []string
		for _, r := range u.AbsentRanks {
			got = append(got, r.Name())
		}
		if int(u.Absent) != len(names) || !slices.Equal(got, names) || u.Generation != s.generation {
			t.Errorf("%s %d ranks are absent: %q, want %q", when, u.Absent, got, names)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	want("at first", rank0.String(), rank1.String())
	answer(s, ended, ask{rank: rank0, generation: 1})
	answer(s, ended, ask{rank: Rank{DP: 7}, generation: 1}) // which is none
	want("after one asked", rank1.String())
	answer(s, ended, ask{rank: rank1, generation: 1})
	want("after both did")
	s.Admit(&pb.Admit{Join: 9, Rank: rank1.wire()})
	want("after one joined again", rank1.String())
	s.Restart(&pb.Restart{Generation: 2, NextStep: 5})
	want("after a move", rank0.String(), rank1.String())
	answer(s, ended, ask{rank: rank1, generation: 1, step: 5, acked: 5}) // adopted
	want("after a rank of before went on", rank0.String())
}

// TestStepsBehindRanks: where the ranks that go on are further than where the job was moved to,
// the steps that they have are assembled all the same: the planner has to hear of their rows.
func TestStepsBehindRanks(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s := twoRanks(100)
	for _, r := range []Rank{rank0, rank1} {
		answer(s, ended, ask{rank: r, generation: 1}) // it begins with step 0, and has to wait
	}
	s.Restart(&pb.Restart{Generation: 2, NextStep: 0})
	for _, r := range []Rank{rank0, rank1} {
		answer(s, ended, ask{rank: r, generation: 1, step: 3, acked: 3})
	}
	for step := range uint64(5) {
		s.Plan(&pb.StepPlan{Generation: 2, Step: step, SampleLength: []uint32{1}})
	}
	for step := range uint64(5) {
		p, err := s.Claim(ended)
		if err != nil || p.Step != step {
			t.Fatalf("step %d is not assembled next, but %v, %v", step, p, err)
		}
	}
}

// TestAdopted: a rank that stood where the job was moved to goes on, though it is further
// when it asks next; one that was further, or joined again, or whose mesh was another, does not.
func TestAdopted(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		acked   uint64
		again   bool
		restart *pb.Restart
		stale   bool // what comes next was sent before the rank was further
		want    string
	}{
		"stood there": {acked: 5, restart: &pb.Restart{Generation: 2, NextStep: 5}, want: "waited"},
		"was further": {acked: 6, restart: &pb.Restart{Generation: 2, NextStep: 5}, want: "was moved to step"},
		"was further, and a request from before comes again": {acked: 6, restart: &pb.Restart{Generation: 2, NextStep: 5}, stale: true, want: "was moved to step"},
		"stood there, and the same":                          {acked: 5, restart: &pb.Restart{Generation: 2, NextStep: 5}, stale: true, want: "waited"},
		"was behind":                                         {acked: 4, restart: &pb.Restart{Generation: 2, NextStep: 5}, want: "was moved to step"},
		"joined again":                                       {acked: 5, again: true, restart: &pb.Restart{Generation: 2, NextStep: 5}, want: "was moved to step"},
		"on another mesh":                                    {acked: 5, restart: &pb.Restart{Generation: 2, NextStep: 5, Remeshed: true}, want: "was moved to step"},
	} {
		s := twoRanks(100)
		answer(s, ended, ask{rank: rank0, generation: 1, step: 6, acked: test.acked})
		if test.again {
			s.Admit(&pb.Admit{Join: 9, Rank: rank0.wire()})
		}
		s.Restart(test.restart)
		if test.stale {
			_, err := answer(s, ended, ask{rank: rank0, generation: 1, step: 7, acked: 5})
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: got %v, want %q", name, err, test.want)
			}
		}
		_, err := answer(s, ended, ask{rank: rank0, generation: 1, step: 8, acked: 7})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

// TestTakenAlongStaysWhereItIs: a rank that began together with the one that moved the job says
// where it is once, before the move; nobody waits for it to say so again.
func TestTakenAlongStaysWhereItIs(t *testing.T) {
	for _, since := range []uint64{8, 9} {
		s := twoRanks(100)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		s.Admit(&pb.Admit{Join: 9, Rank: rank0.wire()})
		answer(s, ended, ask{rank: rank0, generation: 1})
		if err := s.Ack(Caller{Rank: rank0, Generation: 1, Acked: 2}); err != nil {
			t.Fatal(err)
		}
		s.Restart(&pb.Restart{Generation: 2, NextStep: 0, Since: since})
		want := map[uint64]uint64{8: 2, 9: 0}[since] // it joined after join 8
		if got := s.Admit(&pb.Admit{Join: 10, Rank: rank0.wire(), OnlyAsks: true}); got.Acked != want {
			t.Errorf("moved for a rank that was last heard of at join %d: it is at step %d, want %d", since, got.Acked, want)
		}
	}
}

// TestClaimsInOrder: with several builders and plans that come in any order, each
// step is built once, the lower ones first, and never more than the budget holds
// beside the first.
func TestClaimsInOrder(t *testing.T) {
	const steps = 200
	s := twoRanks(100)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	var built []uint64
	for range 2 {
		all.Go(func() {
			for {
				p, err := s.Claim(ctx)
				if err != nil {
					return
				}
				s.Done(&Step{Generation: 1, Number: p.Step, Bytes: 4 * int64(p.SampleLength[0])})
				mu.Lock()
				built = append(built, p.Step)
				done := len(built) == steps
				mu.Unlock()
				if done {
					cancel()
					return
				}
			}
		})
	}
	all.Go(func() {
		rng := rand.New(rand.NewPCG(1, 1))
		for at := 0; at < steps; at += 4 { // a few ahead, in any order
			for _, k := range rng.Perm(4) {
				s.Plan(planOf(uint64(at+k), 20)) // 80 bytes: one fits
			}
		}
	})
	for _, r := range []Rank{rank0, rank1} {
		all.Go(func() {
			for k := range uint64(steps) {
				st, err := answer(s, ctx, ask{rank: r, generation: 1, step: k, acked: k})
				if err == nil && st.Number != k {
					t.Errorf("step %d came for step %d", st.Number, k)
				}
				if held := s.Usage().HeldBytes; held > 100 {
					t.Errorf("%d bytes are held, 100 are allowed", held)
				}
			}
		})
	}
	all.Wait()
	slices.Sort(built)
	if len(built) != steps || built[steps-1] != steps-1 || len(slices.Compact(built)) != steps {
		t.Errorf("%d steps were built: %v", len(built), built)
	}
}

// TestClaimWaitsForTheNext: a plan that comes before that of an earlier step does not
// take its room.
func TestClaimWaitsForTheNext(t *testing.T) {
	s := twoRanks(100)
	now, cancel := context.WithCancel(t.Context())
	cancel()
	s.Plan(planOf(1, 20))
	if p, err := s.Claim(now); err == nil {
		t.Fatalf("step %d was claimed, step 0 was not", p.Step)
	}
	s.Plan(planOf(0, 20))
	if p, err := s.Claim(now); err != nil || p.Step != 0 {
		t.Fatalf("the first claim: %v, %v", p, err)
	}
}

// TestBudget: a step over the budget is built if it is the only one; the next
// waits until all ranks are done with it.
func TestBudget(t *testing.T) {
	s := twoRanks(10)
	s.Plan(planOf(1, 100))
	s.Plan(planOf(0, 100))
	now, cancel := context.WithCancel(t.Context())
	cancel()
	p, err := s.Claim(now)
	if err != nil || p.Step != 0 {
		t.Fatalf("the first claim: %v, %v", p, err)
	}
	if p, err := s.Claim(now); err == nil {
		t.Fatalf("step %d was claimed over the budget", p.Step)
	}
	if at := s.Usage().Crowded; at != 1+1 {
		t.Errorf("step 1 has no room, and the planner hears %d", at)
	}
	s.Done(&Step{Generation: 1, Number: 0, Bytes: 400})
	for _, r := range []Rank{rank0, rank1} {
		if p, err := s.Claim(now); err == nil {
			t.Fatalf("step %d was claimed before %s was done", p.Step, r)
		}
		if _, err := answer(s, now, ask{rank: r, generation: 1, step: 0}); err != nil {
			t.Fatal(err)
		}
		answer(s, now, ask{rank: r, generation: 1, step: 1, acked: 1}) // it is not there yet
	}
	if p, err := s.Claim(now); err != nil || p.Step != 1 || s.Usage().Crowded != 0 {
		t.Fatalf("after both ranks: %v, %v", p, err)
	}
	if acks := s.takeAcks(); len(acks) != 2 || acks[0].Step != 1 || acks[1].Step != 1 {
		t.Errorf("acknowledgements %v", acks)
	}
	if acks := s.takeAcks(); len(acks) != 0 {
		t.Errorf("acknowledgements told twice: %v", acks)
	}
}

// TestBudgetOfWhatCame: a step is held with the bytes that came for it, which images
// and kept columns make more than what its tokens reserved, and is let go with them.
func TestBudgetOfWhatCame(t *testing.T) {
	s := twoRanks(10000)
	s.Plan(planOf(0, 100))
	if _, err := s.Claim(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Done(&Step{Generation: 1, Number: 0, Bytes: 5400})
	if s.held != 5400 {
		t.Errorf("%d bytes are held, want 5400", s.held)
	}
	for _, r := range []Rank{rank0, rank1} {
		ack(t, s, r, 1)
	}
	if s.held != 0 {
		t.Errorf("%d bytes are held of no step", s.held)
	}
}

// TestRefusals: what can never be answered is refused at once, in words.
func TestRefusals(t *testing.T) {
	s := twoRanks(1000)
	s.Restart(&pb.Restart{Generation: 2, NextStep: 5, Moved: &pb.Moved{By: &pb.Coordinates{Dp: 1, Cp: 2}, To: 5}})
	now, cancel := context.WithCancel(t.Context())
	cancel()
	s.Admit(&pb.Admit{Join: 9, Rank: &pb.Coordinates{Dp: 1}})
	for _, test := range []struct {
		name, says string
		q          ask
	}{
		{"a rank of another constructor", "does not fetch from this constructor", ask{rank: Rank{DP: 7}, generation: 2, step: 5}},
		{"a rank of an earlier generation", "moved to step 5 since rank dp=0 cp=0 pp=0 tp=0 joined, by rank dp=1 cp=2 pp=0 tp=0, which joined with the token of another checkpoint", ask{rank: rank0, generation: 1, step: 6, acked: 6}},
		{"a step that is gone", "said they were done with the steps before 5", ask{rank: rank0, generation: 2, step: 4}},
		{"a client that another one followed", "a rank has one client at a time", ask{rank: rank1, generation: 2, step: 5, join: 8}},
	} {
		_, err := answer(s, now, test.q)
		if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	// Ranks that joined where the generation began before it did, belong to it.
	for acked := uint64(5); acked < 8; acked++ {
		_, err := answer(s, now, ask{rank: rank0, generation: 1, step: acked, acked: acked})
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the planner has not planned it") {
			t.Errorf("step %d of a rank that was there before: %v", acked, err)
		}
	}
	if a := s.Admit(&pb.Admit{Join: 10, Rank: &pb.Coordinates{}}); a.Acked != 7 || a.Generation != 2 || a.Join != 10 {
		t.Errorf("admitted %v", a)
	}
}

// TestRestartDropsTheOld: nothing of an earlier generation is served or counted.
func TestRestartDropsTheOld(t *testing.T) {
	s := twoRanks(1000)
	s.Plan(planOf(0, 10))
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Claim(now); err != nil {
		t.Fatal(err)
	}
	s.Restart(&pb.Restart{Generation: 2, NextStep: 0})
	s.Done(&Step{Generation: 1, Number: 0, Bytes: 40})
	s.Plan(planOf(1, 10))
	s.End(&pb.EndOfData{Generation: 1, Step: 0})
	if held := s.Usage().HeldBytes; held != 0 {
		t.Errorf("%d bytes are held", held)
	}
	if st, err := answer(s, now, ask{rank: rank0, generation: 2}); err == nil {
		t.Errorf("an old step was served: %v", st)
	}
	if p, err := s.Claim(now); err == nil {
		t.Errorf("an old plan was claimed: %v", p)
	}
}

// ask is a request of a rank for a step.
type ask struct {
	rank             Rank
	generation, step uint64
	acked, join      uint64
}

func (q ask) caller() Caller {
	return Caller{Rank: q.rank, Generation: q.generation, Join: q.join, Acked: q.acked}
}

func answer(s *Steps, ctx context.Context, q ask) (*Step, error) {
	st, _, err := s.Get(ctx, q.caller(), q.step)
	return st, err
}

// TestLeave: what is there is given out by one who leaves, and those who wait are sent to the planner. The
// error says neither that another constructor serves them nor that a planner is there, as this one does not know it.
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := twoRanks(100)
		hold(t, s, 1)
		waited := make(chan error)
		go func() {
			_, err := answer(s, t.Context(), ask{rank: rank0, generation: 1, step: 1})
			waited <- err
		}()
		synctest.Wait()
		left := s.Leave()
		if err := <-waited; !errors.Is(err, left) {
			t.Errorf("who waits hears %v", err)
		}
		if text := left.Error(); text != "this constructor was asked to stop: the planner says which one serves the rank: it has to join again" ||
			!errors.Is(left, ErrJoinAgain) || fault.ClassOf(left) != fault.Lost {
			t.Errorf("who waits hears %q, of class %v", text, fault.ClassOf(left))
		}
		if st, err := answer(s, t.Context(), ask{rank: rank1, generation: 1}); err != nil || st == nil {
			t.Errorf("a step that is there: %v, %v", st, err)
		}
		if _, err := answer(s, t.Context(), ask{rank: rank1, generation: 1, step: 1}); !errors.Is(err, left) {
			t.Errorf("a step that is not: %v", err)
		}
		empty := New()
		left = empty.Leave()
		if _, err := answer(empty, t.Context(), ask{rank: rank1}); !errors.Is(err, left) {
			t.Errorf("without a job: %v", err)
		}
		alone := twoRanks(100)
		alone.Alone(errors.New("the session with the planner at A ended: EOF"))
		time.Sleep(2 * time.Second) // of virtual time
		left = alone.Leave()
		if _, err := answer(alone, t.Context(), ask{rank: rank1, generation: 1, step: 1}); !errors.Is(err, left) || !errors.Is(left, ErrJoinAgain) || fault.ClassOf(left) != fault.Lost ||
			!strings.Contains(left.Error(), "asked to stop, and there has been no planner for 2 s: the session with the planner at A ended: EOF") {
			t.Errorf("without a planner: %v, %v", err, left)
		}
	})
}

// TestBetweenMeshes: the job of another mesh comes before the generation that begins with it.
// Who asks in between waits for that, and is measured by no step of before.
func TestBetweenMeshes(t *testing.T) {
	s := New()
	job := &pb.ConstructorJob{Buckets: []uint32{0}, Mesh: &pb.Mesh{Dp: 1, Cp: 1, Pp: 1, Tp: 1}, Ahead: 4}
	s.Take(job, 1<<40)
	s.Take(onMesh(job, 1), 1<<40)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := answer(s, ctx, ask{step: 12, acked: 12}); fault.ClassOf(err) != fault.Lost {
		t.Errorf("in between: %v, want to wait", err)
	}
	if err := s.Ack(Caller{Acked: 12}); fault.ClassOf(err) != fault.Lost {
		t.Errorf("an acknowledgement in between: %v", err)
	}
	s.Restart(&pb.Restart{Generation: 1, NextStep: 7, Remeshed: true, Moved: &pb.Moved{To: 7, Topology: "dp1"}})
	if _, err := answer(s, t.Context(), ask{step: 12, acked: 12}); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "was moved to step 7") {
		t.Errorf("after it: %v", err)
	}
}

// onMesh is a job on another mesh, on which ranks are numbered with other strides.
func onMesh(job *pb.ConstructorJob, stride uint32) *pb.ConstructorJob {
	job = proto.CloneOf(job)
	job.Mesh.Stride = []uint32{stride}
	return job
}

// takeAcks are the buckets of TakeReports.
func (s *Steps) takeAcks() []*pb.Acked {
	_, moved := s.TakeReports()
	return moved
}

// ack gives a rank's position.
func ack(t testing.TB, s *Steps, r Rank, acked uint64) {
	t.Helper()
	if err := s.Ack(Caller{Rank: r, Generation: s.generation, Acked: acked}); err != nil {
		t.Error(err)
	}
}

// TestGrow: a step that needs more memory than its tokens waits until there is room, unless ranks
// can get no other; a rank that waits for it hears why.
func TestGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := twoRanks(100)
		claim := func(want uint64) *pb.StepPlan {
			t.Helper()
			s.Plan(planOf(want, 5))
			p, err := s.Claim(t.Context())
			if err != nil || p.Step != want {
				t.Fatal(p, err)
			}
			return p
		}
		first, second := claim(0), claim(1)
		grown := make(chan error, 1)
		if err := s.Grow(t.Context(), first, 300); err != nil {
			t.Fatal(err)
		}
		go func() { grown <- s.Grow(t.Context(), second, 60) }() // beside the 300 of the first it is too much
		synctest.Wait()
		s.Done(&Step{Generation: 1, Number: 0, Bytes: 300})
		synctest.Wait()
		now, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := answer(s, now, ask{rank: rank0, generation: 1, step: 1}); !strings.Contains(err.Error(), "320 of 100 bytes of this constructor's buffer are held") {
			t.Errorf("a rank hears %v", err)
		}
		if at := s.Usage().Crowded; at != 1+1 {
			t.Errorf("step 1 waits for room, and the planner hears %d", at)
		}
		select {
		case err := <-grown:
			t.Fatalf("step 1 grew beside 300 bytes of step 0: %v", err)
		default:
		}
		ack(t, s, rank0, 1)
		ack(t, s, rank1, 1)
		if err := <-grown; err != nil || s.held != 60 {
			t.Fatalf("%d bytes are held, want the 60 of step 1: %v", s.held, err)
		}
		s.Done(&Step{Generation: 1, Number: 1, Bytes: 60})
		third := claim(2)
		go func() { grown <- s.Grow(t.Context(), third, 90) }()
		synctest.Wait()
		s.Restart(&pb.Restart{Generation: 2})
		if err := <-grown; err != nil || s.held != 0 {
			t.Errorf("a step of an earlier generation holds %d bytes: %v", s.held, err)
		}
	})
}
