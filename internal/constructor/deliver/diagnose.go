package deliver

import (
	"fmt"
	"time"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// waiting is a rank's wait for a step, over all requests that it makes for it: a client asks
// again after each deadline.
type waiting struct {
	step  uint64
	since time.Time
	open  int // requests under way
}

// arrive notes that a rank asks.
func (s *Steps) arrive(r Rank, step uint64, now time.Time) *waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiting[r]
	if w == nil || w.step != step {
		w = &waiting{step: step, since: now}
		s.waiting[r] = w
	}
	w.open++
	return w
}

// leave notes that a request ended, answered or not. The lock is held.
func (s *Steps) leave(r Rank, w *waiting, answered bool) {
	if w.open--; answered && s.waiting[r] == w {
		delete(s.waiting, r)
	}
}

// waits says whether a rank's trainer has no batch: a request for a later step than the one
// that it is at is of a client that reads ahead. The lock is held.
func (s *Steps) waits(r Rank) bool {
	w := s.waiting[r]
	return w != nil && w.open > 0 && w.step <= s.acked[r]
}

// slowest is the rank of a bucket that holds it back, and how far that is. Of those that
// are equally far it is one that does not wait itself. The lock is held.
func (s *Steps) slowest(dp uint32) (slow Rank, low uint64) {
	low = ^uint64(0)
	for _, r := range s.buckets[dp].ranks {
		if a := s.acked[r]; a < low || a == low && s.waits(slow) && !s.waits(r) {
			slow, low = r, a
		}
	}
	return slow, low
}

func (s *Steps) ackedOf(dp uint32) *pb.Acked {
	slow, low := s.slowest(dp)
	return &pb.Acked{Generation: s.generation, Bucket: dp, Step: low, Slowest: slow.String(), Waits: s.waits(slow)}
}

// blockedOn says why a step is not there yet. The lock is held.
func (s *Steps) blockedOn(r Rank, step uint64) string {
	switch {
	case s.job == nil:
		return "this constructor has not heard from the planner"
	case s.building[step] != nil && !s.building[step].crowded:
		if what := s.building[step].awaits; what != "" {
			return "its samples are being fetched: " + what
		}
		return "its samples are being fetched from the loaders"
	case s.plans[step] != nil || s.building[step] != nil:
		return fmt.Sprintf("it is planned, but %d of %d bytes of this constructor's buffer are held by steps that ranks have not finished: %s",
			s.held, s.budget, s.behind(r))
	default:
		return "the planner has not planned it; " + s.behind(r)
	}
}

// Waits says what a rank's request for a step waits for.
func (s *Steps) Waits(r Rank, step uint64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blockedOn(r, step)
}

// Awaits notes what a loader that is asked for samples of a step waits for itself.
func (s *Steps) Awaits(p *pb.StepPlan, loader, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.building[p.Step]; c != nil && c.plan == p {
		c.awaits = fmt.Sprintf("the loader at %s %s", loader, what)
	}
}

// behind names the rank here that others wait for, if there is one beside the one that asks.
// The lock is held.
func (s *Steps) behind(asks Rank) string {
	slow, low := Rank{}, s.acked[asks]
	found := false
	for _, dp := range s.job.Buckets {
		r, a := s.slowest(dp)
		if r != asks && (a < low || a == low && !found && !s.waits(r)) {
			slow, low, found = r, a, true
		}
	}
	if !found {
		return "no rank of this constructor is further behind, `millrace status` says what the planner waits for"
	}
	return fmt.Sprintf("the slowest rank here: %s is at step %d", slow, low)
}
