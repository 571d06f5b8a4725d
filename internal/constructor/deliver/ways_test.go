package deliver

import (
	"testing"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// TestWays: ranks are grouped by how they get their batches; a single step by a call changes nothing; one whose line has
// ended is gone until it comes back.
func TestWays(t *testing.T) {
	s := New()
	s.Take(&pb.ConstructorJob{Mesh: &pb.Mesh{Dp: 1, Cp: 4, Pp: 3, Tp: 1}, Buckets: []uint32{0}}, 100)
	for i := range uint32(12) {
		way := Way{Name: Shared}
		if i >= 10 {
			way = Way{Stream, "it is elsewhere"}
		}
		_, leave, err := s.Attend(t.Context(), Rank{CP: i / 3, PP: i % 3}, way)
		if err != nil {
			t.Fatal(err)
		}
		if i != 11 {
			defer leave()
		} else {
			leave()
		}
	}
	if all := s.Usage().Ways; len(all) != 3 || all[2].Way != Gone || all[2].Reason != "" || all[2].Ranks != 1 || RankOf(all[2].First[0]) != (Rank{CP: 3, PP: 2}) {
		t.Errorf("the line of one has ended: %v", all)
	}
	s.Delivered(Rank{}, Way{Name: Calls}, 0)
	s.Delivered(Rank{CP: 3, PP: 2}, Way{Name: Calls}, 0)
	s.Delivered(Rank{DP: 9}, Way{Name: Calls}, 0)
	all := s.Usage().Ways
	if len(all) != 3 || all[0].Way != Shared || all[0].Ranks != 10 || len(all[0].First) != maxAbsent ||
		all[1].Way != Stream || all[1].Reason != "it is elsewhere" || all[1].Ranks != 1 || all[2].Way != Calls || all[2].Ranks != 1 {
		t.Errorf("ways: %v", all)
	}
}

// TestWaysElsewhere: a restart forgets the ways of ranks that are another constructor's.
func TestWaysElsewhere(t *testing.T) {
	s, mesh := New(), &pb.Mesh{Dp: 2, Cp: 1, Pp: 1, Tp: 1}
	s.Take(&pb.ConstructorJob{Mesh: mesh, Buckets: []uint32{0, 1}}, 100)
	s.Restart(&pb.Restart{Generation: 1})
	s.Delivered(Rank{}, Way{Name: Calls}, 0)
	s.Delivered(Rank{DP: 1}, Way{Name: Calls}, 0)
	if all := s.Usage().Ways; len(all) != 1 || all[0].Ranks != 2 {
		t.Fatalf("ways of two ranks: %v", all)
	}
	s.Take(&pb.ConstructorJob{Mesh: mesh, Buckets: []uint32{1}}, 100)
	s.Restart(&pb.Restart{Generation: 2})
	if all := s.Usage().Ways; len(all) != 1 || all[0].Ranks != 1 {
		t.Errorf("ways of the one that is left: %v", all)
	}
}

// TestLend: memory that ranks map counts as held, is at most half of the budget, and waits for steps that are there.
func TestLend(t *testing.T) {
	s := New()
	s.Take(&pb.ConstructorJob{Mesh: &pb.Mesh{Dp: 1, Cp: 1, Pp: 1, Tp: 1}, Buckets: []uint32{0}}, 100)
	lend := func(bytes int64) bool { return s.SetAside(bytes) && s.Lend(bytes) }
	if !lend(50) || lend(1) || s.Usage().HeldBytes != 50 || s.fits(51) || !s.fits(50) {
		t.Errorf("of 100 bytes 50 may be lent: %v", s.Usage())
	}
	if s.GiveBack(30); !lend(30) {
		t.Error("what was given back cannot be lent")
	}
	s.GiveBack(50)
	for step := range uint64(2) {
		s.held += 40
		s.ready[step] = &Step{Number: step, Bytes: 40}
	}
	if !s.SetAside(30) || s.fits(1) || s.Lend(30) || s.Usage().HeldBytes != 80 {
		t.Errorf("with 80 of 100 bytes in two steps, 30 are set aside and not lent: %v", s.Usage())
	}
	s.drop(0)
	if !s.Lend(30) || s.Usage().HeldBytes != 70 || !s.fits(30) {
		t.Errorf("with 40 of 100 bytes in a step, 30 are lent: %v", s.Usage())
	}
	if s.SetAside(20); s.fits(11) || !s.fits(10) {
		t.Error("steps get what is set aside")
	}
	if s.Forgo(20); !s.fits(30) {
		t.Error("what was set aside and is not wanted is kept")
	}
	if s.held = 95; !s.SetAside(5) || !s.Lend(5) {
		t.Error("a single step is waited for")
	}
}
