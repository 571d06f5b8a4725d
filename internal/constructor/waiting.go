package constructor

import (
	"fmt"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// waiting is a rank that waits for a step, over all requests that it makes for it: a
// client asks again with a newer acknowledgement, and after each deadline.
type waiting struct {
	step  uint64
	since time.Time
	open  int // requests under way
}

// arrive notes that a rank asks.
func (s *steps) arrive(q ask, now time.Time) *waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiting[q.rank]
	if w == nil || w.step != q.step {
		w = &waiting{step: q.step, since: now}
		s.waiting[q.rank] = w
	}
	w.open++
	return w
}

// leave notes that a request ended, answered or not. The lock is held.
func (s *steps) leave(q ask, w *waiting, answered bool) {
	if w.open--; answered && s.waiting[q.rank] == w {
		delete(s.waiting, q.rank)
	}
}

// waits says whether a rank has a request under way. The lock is held.
func (s *steps) waits(r rank) bool {
	w := s.waiting[r]
	return w != nil && w.open > 0
}

// known refuses a rank whose join this constructor did not see: it, or the whole service,
// was started again since. The rank has to join again, or its acknowledgements would be
// taken for steps of another life.
func (s *steps) known(q ask) error {
	if q.join > s.joins[q.rank] {
		return fault.Lostf("%s joined a service that was there before this one: it has to join again", q.rank)
	}
	return nil
}

// slowest is the rank of a bucket that holds it back, and how far that is. Of those that
// are equally far it is one that does not wait itself. The lock is held.
func (s *steps) slowest(dp uint32) (slow rank, low uint64) {
	low = ^uint64(0)
	for _, r := range s.fetchers(dp) {
		if a := s.acked[r]; a < low || a == low && s.waits(slow) && !s.waits(r) {
			slow, low = r, a
		}
	}
	return slow, low
}

func (s *steps) ackedOf(dp uint32) *pb.Acked {
	slow, low := s.slowest(dp)
	return &pb.Acked{Generation: s.generation, Bucket: dp, Step: low, Slowest: slow.String(), Waits: s.waits(slow)}
}

// takeAcks returns the buckets whose slowest rank moved.
func (s *steps) takeAcks() (moved []*pb.Acked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, dp := range s.job.GetBuckets() {
		if a := s.ackedOf(dp); a.Step > s.reported[dp] {
			s.reported[dp] = a.Step
			moved = append(moved, a)
		}
	}
	return moved
}

// blockedOn says why a step is not there yet. The lock is held.
func (s *steps) blockedOn(q ask) string {
	switch {
	case s.job == nil:
		return "this constructor has not heard from the planner"
	case s.building[q.step] > 0:
		return "its samples are being fetched from the loaders"
	case s.plans[q.step] != nil:
		return fmt.Sprintf("it is planned, but %d of %d bytes of this constructor's buffer are held by steps that ranks have not finished: %s",
			s.held, s.budget, s.behind(q))
	default:
		return "the planner has not planned it; " + s.behind(q)
	}
}

// behind names the rank here that others wait for, if there is one beside the one that asks.
func (s *steps) behind(q ask) string {
	slow, low := rank{}, s.acked[q.rank]
	found := false
	for _, dp := range s.job.Buckets {
		r, a := s.slowest(dp)
		if r != q.rank && (a < low || a == low && !found && !s.waits(r)) {
			slow, low, found = r, a, true
		}
	}
	if !found {
		return "no rank of this constructor is further behind, `millrace status` says what the planner waits for"
	}
	return fmt.Sprintf("the slowest rank here: %s is at step %d", slow, low)
}
