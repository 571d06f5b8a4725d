package deliver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// build builds the next step, whose rows the planner hears of.
func build(t *testing.T, s *Steps, step uint64) {
	t.Helper()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	p, err := s.Claim(ended)
	if err != nil || p.Step != step {
		t.Fatalf("step %d is not to be built next, but %v: %v", step, p, err)
	}
	s.Done(&Step{Generation: p.Generation, Number: p.Step, Bytes: 4, Plan: p, Rows: []*pb.Assembled{{Generation: p.Generation, Step: p.Step}}})
}

// heard are the steps whose rows the planner hears of next, and the buckets.
func heard(s *Steps) (steps, buckets []uint64) {
	rows, moved := s.TakeReports()
	for _, r := range rows {
		steps = append(steps, r.Step)
	}
	for _, a := range moved {
		buckets = append(buckets, uint64(a.Bucket), a.Step)
	}
	return steps, buckets
}

// served is a constructor with two ranks that joined; the first is done with two steps.
func served(t *testing.T) *Steps {
	s := twoRanks(1000)
	for i, r := range []Rank{rank0, rank1} {
		s.Admit(&pb.Admit{Join: uint64(i + 1), Rank: r.wire()})
	}
	for step := range uint64(4) {
		s.Plan(planOf(step, 1))
		build(t, s, step)
	}
	if _, err := answer(s, t.Context(), ask{rank: rank0, generation: 1, step: 2, acked: 2, join: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := answer(s, t.Context(), ask{rank: rank1, generation: 1, step: 1, acked: 1, join: 2}); err != nil {
		t.Fatal(err)
	}
	heard(s)
	return s
}

// TestGoesOn: while there is no planner, and after one that goes on in the same generation, ranks
// are served as before. That one hears again what the one before may have missed.
func TestGoesOn(t *testing.T) {
	s := served(t)
	held := s.Held()
	if held.Generation != 1 || s.base != 1 || held.Next != 4 || len(held.Ranks) != 2 || held.Acked[0].Step != 2 || held.Acked[1].Step != 1 {
		t.Errorf("it holds %v", held)
	}
	s.Attach()
	s.Take(s.job, 1000)
	if _, err := answer(s, t.Context(), ask{rank: rank1, generation: 1, step: 3, acked: 2, join: 2}); err != nil {
		t.Errorf("before the planner said that it goes on: %v", err)
	}
	if steps, buckets := heard(s); steps != nil || buckets != nil {
		t.Errorf("before that the planner hears of steps %v and buckets %v", steps, buckets)
	}
	s.Enter(7)
	s.Restart(&pb.Restart{Generation: 1, NextStep: 1, Continues: true})
	if steps, buckets := heard(s); !slices.Equal(steps, []uint64{1, 2, 3}) || !slices.Equal(buckets, []uint64{0, 2, 1, 2}) {
		t.Errorf("it hears of steps %v and buckets %v", steps, buckets)
	}
	s.Plan(planOf(2, 1)) // which is here
	s.Plan(planOf(4, 1))
	build(t, s, 4)
	if _, err := answer(s, t.Context(), ask{rank: rank0, generation: 1, step: 4, acked: 4, join: 1}); err != nil {
		t.Errorf("a new step: %v", err)
	}
	if s.entered != 7 {
		t.Errorf("the last join is %d", s.entered)
	}
}

// TestAnotherLife: a planner that knows nothing of the ranks voids what they had. They have to
// join again, whatever the numbers of its joins and generations are.
func TestAnotherLife(t *testing.T) {
	for name, begin := range map[string]func(*Steps){
		"with a restart": func(s *Steps) { s.Restart(&pb.Restart{Generation: 1}) },
		"with a plan":    func(s *Steps) { s.Plan(&pb.StepPlan{Step: 0}) },
	} {
		s := served(t)
		s.Fail(errors.New("broken"))
		s.Attach()
		s.Take(s.job, 1000)
		begin(s)
		_, err := answer(s, t.Context(), ask{rank: rank0, generation: 1, step: 2, acked: 2, join: 1})
		if !errors.Is(err, ErrJoinAgain) || fault.ClassOf(err) != fault.Lost {
			t.Errorf("%s: %v, want that it joins again", name, err)
		}
		if len(s.ready) > 0 || s.held != 0 {
			t.Errorf("%s: %d steps are there, %d bytes", name, len(s.ready), s.held)
		}
	}
}

// TestOtherBuckets: a constructor that stands in for another one goes on serving its own ranks,
// and the others once the steps have their rows. When it gives them back, they hear so.
func TestOtherBuckets(t *testing.T) {
	mesh := &pb.Mesh{Dp: 2, Cp: 1, Pp: 1, Tp: 1}
	own, both := &pb.ConstructorJob{Buckets: []uint32{0}, Mesh: mesh}, &pb.ConstructorJob{Buckets: []uint32{0, 1}, Mesh: mesh}
	s := New()
	s.Take(own, 100)
	s.Restart(&pb.Restart{Generation: 1})
	for step := range uint64(3) {
		s.Plan(planOf(step, 1))
		build(t, s, step)
	}
	own0 := ask{rank: rank0, generation: 1, step: 2, acked: 2}
	if _, err := answer(s, t.Context(), own0); err != nil {
		t.Fatal(err)
	}
	heard(s)
	s.Take(both, 100)
	s.Restart(&pb.Restart{Generation: 1, NextStep: 1, Continues: true})
	if _, err := answer(s, t.Context(), own0); err != nil {
		t.Errorf("its own rank: %v", err)
	}
	now, cancel := context.WithCancel(t.Context())
	cancel()
	other := ask{rank: rank1, generation: 1, step: 2, acked: 1}
	if _, err := answer(s, now, other); err == nil {
		t.Error("a step without the rows of a rank is given to it")
	}
	for step := uint64(1); step < 3; step++ {
		s.Plan(planOf(step, 1, 1))
		build(t, s, step)
	}
	if _, err := answer(s, t.Context(), other); err != nil {
		t.Errorf("the rank that came: %v", err)
	}
	if steps, buckets := heard(s); !slices.Equal(steps, []uint64{1, 2}) || !slices.Equal(buckets, []uint64{0, 2}) || s.base != 1 {
		t.Errorf("the planner hears of steps %v and buckets %v; steps from %d on are held", steps, buckets, s.base)
	}
	s.Take(own, 100)
	s.Restart(&pb.Restart{Generation: 1, NextStep: 1, Continues: true})
	if _, err := answer(s, t.Context(), other); !errors.Is(err, ErrJoinAgain) {
		t.Errorf("the rank that left: %v", err)
	}
	if _, err := answer(s, t.Context(), own0); err != nil || s.base != 2 || s.held != 4 {
		t.Errorf("its own rank: %v; steps from %d on are held, %d bytes", err, s.base, s.held)
	}
}

// TestRowsOfStandIn: a constructor that stood in for another one for a moment, and has not built its
// steps again for both, tells the next planner of the rows that it has.
func TestRowsOfStandIn(t *testing.T) {
	mesh := &pb.Mesh{Dp: 2, Cp: 1, Pp: 1, Tp: 1}
	own, both := &pb.ConstructorJob{Buckets: []uint32{0}, Mesh: mesh}, &pb.ConstructorJob{Buckets: []uint32{0, 1}, Mesh: mesh}
	s := New()
	s.Take(own, 100)
	s.Restart(&pb.Restart{Generation: 1})
	for step := range uint64(3) {
		s.Plan(planOf(step, 1))
		build(t, s, step)
	}
	heard(s)
	s.Take(both, 100)
	s.Restart(&pb.Restart{Generation: 1, Continues: true})
	s.Plan(planOf(0, 1, 1))
	build(t, s, 0)
	if steps, _ := heard(s); !slices.Equal(steps, []uint64{0}) {
		t.Errorf("beside the other buckets the planner hears of steps %v", steps)
	}
	s.Take(own, 100)
	s.Restart(&pb.Restart{Generation: 1, Continues: true})
	s.Attach()
	s.Take(own, 100)
	s.Restart(&pb.Restart{Generation: 1, Continues: true})
	if steps, _ := heard(s); !slices.Equal(steps, []uint64{0, 1, 2}) {
		t.Errorf("the next planner hears of steps %v, want 0, 1 and 2", steps)
	}
}

// TestPlannedTwice: a step whose plan comes again, with other samples, fails the job: its rows
// would not be those that a planner before had.
func TestPlannedTwice(t *testing.T) {
	s := served(t)
	s.Attach()
	s.Take(s.job, 1000)
	s.Restart(&pb.Restart{Generation: 1, NextStep: 1, Continues: true})
	s.Plan(planOf(2, 9))
	_, err := answer(s, t.Context(), ask{rank: rank0, generation: 1, step: 2, acked: 2, join: 1})
	if err == nil || !strings.Contains(err.Error(), "planned twice") || fault.ClassOf(err) != fault.Bug {
		t.Errorf("got %v", err)
	}
}

// TestPlannedForMore: a plan that came while this constructor had more buckets is built for
// those, and is no other than that for its own.
func TestPlannedForMore(t *testing.T) {
	s := twoRanks(1000)
	own := &pb.ConstructorJob{Buckets: []uint32{0}, Mesh: s.job.Mesh}
	s.Plan(planOf(0, 1, 1))
	s.Take(own, 1000)
	s.Restart(&pb.Restart{Generation: 1, Continues: true})
	if p, err := s.Claim(t.Context()); err != nil || len(p.SampleLength) != 2 {
		t.Fatalf("claimed %v: %v", p, err)
	}
	s.Plan(planOf(0, 1))
	if s.failed != nil {
		t.Error(s.failed)
	}
}

// TestGivenUpWithoutPlanner: a step that fails while there is no planner to hear of it is built
// again for the next one.
func TestGivenUpWithoutPlanner(t *testing.T) {
	s := served(t)
	s.Plan(planOf(4, 1))
	p, err := s.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Attach()
	if s.GiveUp(p, errors.New("no loader")) {
		t.Error("nobody hears of it, and it counts")
	}
	s.Restart(&pb.Restart{Generation: 1, NextStep: 1, Continues: true})
	build(t, s, 4)
	if s.GiveUp(p, errors.New("late")) {
		t.Error("a step that is there fails")
	}
}
