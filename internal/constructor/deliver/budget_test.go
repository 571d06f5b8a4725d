package deliver

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// TestBudgetOfGuesses: a constructor that stands in for another one takes its ranks for where the
// slowest rank of the job was. One of them may wait for a rank that asks here, and ask for nothing
// itself, as it has its steps: what is held for it does not keep that one from its next step.
func TestBudgetOfGuesses(t *testing.T) {
	now, cancel := context.WithCancel(t.Context())
	cancel()
	for _, standsIn := range []bool{true, false} {
		s := New()
		job := &pb.ConstructorJob{Buckets: []uint32{0}, Mesh: &pb.Mesh{Dp: 2, Cp: 1, Pp: 1, Tp: 1}}
		s.Take(job, 10)
		s.Restart(&pb.Restart{Generation: 1})
		both := proto.CloneOf(job)
		both.Buckets = []uint32{0, 1}
		s.Take(both, 10)
		s.Restart(&pb.Restart{Generation: 1, Continues: standsIn})
		for step := range uint64(3) {
			s.Plan(planOf(step, 100))
		}
		if p, err := s.Claim(now); err != nil || p.Step != 0 {
			t.Fatalf("the first claim: %v, %v", p, err)
		}
		s.Done(&Step{Generation: 1, Number: 0, Bytes: 400})
		answer(s, now, ask{rank: rank0, generation: 1, step: 0})
		if p, err := s.Claim(now); err == nil {
			t.Fatalf("step %d was claimed before a rank was further", p.Step)
		}
		answer(s, now, ask{rank: rank0, generation: 1, step: 1, acked: 1}) // it is not there yet
		if _, err := s.Claim(now); (err == nil) != standsIn {
			t.Errorf("another constructor had the rank that does not ask: %v; step 1 for the one that does: %v", standsIn, err)
		}
		if p, err := s.Claim(now); err == nil {
			t.Errorf("step %d was claimed beside it", p.Step)
		}
	}
}
