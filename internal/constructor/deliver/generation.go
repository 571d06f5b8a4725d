package deliver

import (
	"fmt"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// entry is how a rank entered the job when it joined last.
type entry struct {
	generation uint64 // that it names
	step       uint64
}

// Enter notes that a join was granted.
func (s *Steps) Enter(join uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fresh {
		s.greeted = join
		return
	}
	s.entered = max(s.entered, join)
}

// hear notes that a rank asks, and where it began: its first request says so. The lock is held.
func (s *Steps) hear(c Caller) {
	if _, asked := s.asked[c.Rank]; asked {
		return
	}
	e, ok := s.adopted[c.Rank]
	if !ok || e.generation != c.Generation {
		e = entry{c.Generation, c.Acked}
	}
	if s.asked[c.Rank] = e; s.guesses > 0 {
		s.builders.wakeAll() // leastSaid may be another one
	}
}

// adoptable are the ranks that go on in the generation that r begins, with the
// batches that they have: those that stand where it begins, and may be further when
// they ask next; and those that joined there after the rank that moved the job was
// last heard of, for both are being restarted together. The lock is held.
func (s *Steps) adoptable(r *pb.Restart) map[Rank]entry {
	ranks := map[Rank]entry{}
	for q, e := range s.asked {
		join, step := s.joins[q], e.step
		if first := s.entries[q]; first != nil { // it joined again since, where it stood
			join, step = first.Join, first.Step
		}
		joined := r.Since > 0 && step == r.NextStep && join > r.Since
		if !r.Remeshed && (joined || s.acked[q] == r.NextStep) {
			ranks[q] = e
		}
	}
	return ranks
}

// takeAlong keeps how far the ranks are that go on: none of them says it again before it is further.
// The lock is held.
func (s *Steps) takeAlong(acked, advanced map[Rank]uint64) {
	for q := range s.adopted {
		if _, here := s.acked[q]; here && acked[q] > s.acked[q] {
			s.ack(Caller{Rank: q, Acked: acked[q]})
			s.advanced[q] = advanced[q]
		}
	}
}

// adopt takes a rank of an earlier generation into this one if it stands where
// this one began, or is one of those that go on: of ranks that are restarted
// together, the first may join, and be given batches, before another one's join
// moves the job. A request that was made before the rank was further says nothing of
// where it stands. The lock is held.
func (s *Steps) adopt(c Caller) bool {
	if c.Acked == s.origin && s.stood[c.Rank] <= s.origin && !s.strict {
		s.adopted[c.Rank] = entry{c.Generation, c.Acked}
	}
	e, ok := s.adopted[c.Rank]
	return ok && e.generation == c.Generation
}

// refused is a rank that the job does not take along, while its process is there: the others wait
// for it until it is started again.
type refused struct{ since, heard time.Time }

// refusedTime is how long a rank that is refused counts as there: it says every few seconds that it
// is. One that ended is about to be started again.
const refusedTime = 15 * time.Second

// refuse notes that a rank is refused, and says why. The lock is held.
func (s *Steps) refuse(c Caller) error {
	now := time.Now()
	r, known := s.refused[c.Rank]
	if r.heard = now; !known {
		r.since = now
	}
	s.refused[c.Rank] = r
	return fault.As(fault.User, fmt.Errorf("%w to step %d since %s joined, by %s", ErrMoved, s.moved.GetTo(), c.Rank, movedBy(s.moved)))
}

// outcast is the first rank that is refused and still there; ok is false if there is none. The lock
// is held.
func (s *Steps) outcast(now time.Time) (first Rank, since time.Time, ok bool) {
	for q, r := range s.refused {
		if now.Sub(r.heard) <= refusedTime && (!ok || r.since.Before(since)) {
			first, since, ok = q, r.since, true
		}
	}
	return first, since, ok
}

// outcastText says what has to be done about a rank that is refused.
func (s *Steps) outcastText(r Rank) string {
	return fmt.Sprintf("%s, which is refused: the job was moved to step %d since it joined, by %s", r, s.moved.GetTo(), movedBy(s.moved))
}

// movedBy says who or what moved the job, and what its ranks can do.
func movedBy(m *pb.Moved) string {
	with := "with the token of another checkpoint"
	switch {
	case m.GetTopology() != "":
		return fmt.Sprintf("a change of the topology to %s, which named the checkpoint of that step: start the ranks of that mesh from it", m.Topology)
	case m.GetWithoutToken():
		with = "without a resume token"
	}
	return fmt.Sprintf("%s, which joined %s: restart all ranks from the same checkpoint", RankOf(m.GetBy()), with)
}
