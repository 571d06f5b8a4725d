package deliver

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// TestRejoinedGoesAlong: a rank that entered the job where it begins again goes along, though it joined again since,
// where it stood: as its line broke, or its constructor was lost. What this constructor says of it to another planner
// is how it entered, too.
func TestRejoinedGoesAlong(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	entered := &pb.RankEntry{Join: 3, Generation: 1}
	for _, since := range []uint64{2, 3} { // with 3, it entered before the one that moves the job was last heard of
		s := twoRanks(1000)
		s.Admit(&pb.Admit{Join: 5, Rank: rank0.wire(), Step: 2, Entered: entered})
		s.Enter(5)
		answer(s, ended, ask{rank: rank0, generation: 1, step: 2, acked: 2, join: 5})
		if h := s.Held(); len(h.Ranks) != 1 || h.Ranks[0].Join != 5 || !proto.Equal(h.Ranks[0].Entered, entered) {
			t.Fatalf("held: %v", h)
		}
		s.Restart(&pb.Restart{Generation: 2, Since: since})
		err := s.Ack(Caller{Rank: rank0, Generation: 1, Join: 5, Acked: 3})
		if (err == nil) != (since == 2) {
			t.Errorf("since join %d: %v", since, err)
		}
		if h := s.Held(); since == 2 && (!h.Ranks[0].Asked || h.Ranks[0].Generation != 1) {
			t.Errorf("a rank that was taken along is held as %v", h.Ranks[0])
		}
	}
}

// TestRowsLost: a constructor that began behind a step, as its digest was known, has no rows of it. For a planner whose log
// has lost the digest it builds the step once more, and holds nothing.
func TestRowsLost(t *testing.T) {
	s := New()
	job := &pb.ConstructorJob{Buckets: []uint32{0}, Ahead: 4, Mesh: &pb.Mesh{Dp: 1, Cp: 1, Pp: 1, Tp: 1}}
	s.Take(job, 100)
	s.Restart(&pb.Restart{Generation: 1, NextStep: 1})
	s.Attach()
	s.Take(job, 100)
	s.Restart(&pb.Restart{Generation: 1, NextStep: 0, Continues: true})
	s.Plan(planOf(0, 1))
	if p, err := s.Claim(t.Context()); err != nil || p.Step != 0 {
		t.Fatalf("claimed %v: %v", p, err)
	}
	s.Done(&Step{Generation: 1, Number: 0, Bytes: 4, Rows: []*pb.Assembled{{Step: 0}}})
	if rows, _ := s.TakeReports(); len(rows) != 1 || s.Usage().HeldBytes != 0 {
		t.Errorf("%d rows are reported, %d bytes held", len(rows), s.Usage().HeldBytes)
	}
}

// TestRoomForOneStep: a rank whose batches are of a constructor that was lost asks for none until it has trained on
// them, for which it waits for another rank. What is held for it alone must not take that one's room.
func TestRoomForOneStep(t *testing.T) {
	for name, r := range map[string]*pb.Restart{
		"the first steps of a generation": {Generation: 1, Resent: true},
		"later steps":                     {Generation: 1, NextStep: 5, Resent: true},
		"later, of a planner before":      {Generation: 1, NextStep: 5},
	} {
		s := New()
		s.Take(&pb.ConstructorJob{Buckets: []uint32{0, 1}, Ahead: 4, Mesh: &pb.Mesh{Dp: 2, Cp: 1, Pp: 1, Tp: 1}}, 4)
		s.Restart(r)
		n := r.NextStep
		for k := n; k < n+4; k++ {
			s.Plan(planOf(k, 1))
		}
		if _, err := s.Claim(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Done(&Step{Generation: 1, Number: n, Bytes: 4})
		if _, err := answer(s, t.Context(), ask{rank: rank1, generation: 1, step: n, acked: n}); err != nil {
			t.Fatal(err)
		}
		if err := s.Ack(Caller{Rank: rank1, Generation: 1, Acked: n + 1}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := s.Claim(ctx); err != nil {
			t.Errorf("%s: the next step is not built: %v", name, err)
		}
		cancel()
	}
}
