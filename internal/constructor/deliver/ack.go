package deliver

import (
	"slices"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// tally counts ranks by position, and knows the lowest. The lowest only rises, so all moves
// together cost as much as there are moves and positions.
type tally struct {
	low   uint64
	ranks map[uint64]int // by position
}

func newTally(at uint64, ranks int) tally { return tally{at, map[uint64]int{at: ranks}} }

// move takes a rank to a later position, and reports whether the lowest rose.
func (t *tally) move(from, to uint64) (rose bool) {
	if t.ranks[from]--; t.ranks[from] == 0 {
		delete(t.ranks, from)
	}
	t.ranks[to]++
	for ; t.ranks[t.low] == 0; t.low++ {
		rose = true
	}
	return rose
}

// bucket are the ranks of one DP index.
type bucket struct {
	ranks     []Rank
	positions tally
	guess     bool // where a rank is that has not asked yet: it came from another constructor
	risen     bool // since TakeReports
}

// Ack takes a rank's position: it is done with all steps before c.Acked. An older position
// than one that it gave before changes nothing. An error of class fault.Lost says to give it
// again, where the rank has joined by then.
func (s *Steps) Ack(c Caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	if s.job == nil {
		return fault.Lostf("this constructor has not heard from the planner")
	}
	if err := s.known(c); err != nil {
		return err
	}
	if s.between || s.generation < c.Generation {
		return fault.Lostf("this constructor has not heard yet that the job was moved")
	}
	if err := s.check(c, max(c.Acked, s.base)); err != nil {
		return err
	}
	s.hearWait(c)
	s.ack(c)
	if c.Leaves {
		s.left[c.Rank] = c.Join
	}
	return nil
}

// hasLeft says whether a rank's client was closed since the rank joined last. The lock is held.
func (s *Steps) hasLeft(r Rank) bool {
	join, left := s.left[r]
	return left && join == s.joins[r]
}

// leavers is the number of these. The lock is held.
func (s *Steps) leavers() (n uint32) {
	for r := range s.left {
		if _, here := s.acked[r]; here && s.hasLeft(r) {
			n++
		}
	}
	return n
}

// ack notes a rank's position, and releases what no rank needs. The lock is held.
func (s *Steps) ack(c Caller) {
	from := s.acked[c.Rank]
	if c.Acked <= from {
		return
	}
	s.acked[c.Rank], s.advanced[c.Rank], s.stood[c.Rank] = c.Acked, s.entered, c.Acked
	s.trainerOf(c.Rank).stands = time.Now()
	if b := s.buckets[c.Rank.DP]; b.positions.move(from, c.Acked) {
		s.report(c.Rank.DP, b)
	}
	if s.positions.move(from, c.Acked) {
		s.release(s.positions.low)
	} else if s.guesses > 0 && len(s.asked) < len(s.acked) {
		s.builders.wakeAll() // leastSaid may have risen
	}
}

// report has TakeReports give a bucket. The lock is held.
func (s *Steps) report(dp uint32, b *bucket) {
	if !b.risen {
		b.risen = true
		s.risen = append(s.risen, dp)
	}
	s.notify()
}

// notify says that TakeReports has something to give. The lock is held.
func (s *Steps) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// release lets go of the steps before low, which all ranks are done with. It wakes those who
// can go on because of it, not the ranks that wait for later steps. The lock is held.
func (s *Steps) release(low uint64) {
	for k := s.base; k < low; k++ {
		s.drop(k)
		if kept := s.rowsKept(); k >= kept {
			delete(s.rows, k-kept)
		}
		s.steps.wake(k)
	}
	s.base = low
	s.builders.wakeAll()
	s.lookers.wakeAll()
}

// rowsKept are the released steps whose rows are reported again to a planner that goes on: it
// may not have made durable what it heard of the last ones, and is at most the steps planned
// ahead behind the ranks. The lock is held.
func (s *Steps) rowsKept() uint64 { return 64 + uint64(s.job.GetAhead()) }

// Changed is sent to when TakeReports has something to give.
func (s *Steps) Changed() <-chan struct{} { return s.changed }

// TakeReports returns what the planner has not heard: the rows of steps that were built, and the
// buckets whose slowest rank moved. The rows are to be sent first: no rank is done with a step
// whose rows are not known. Between the beginning of a session and its Restart there is nothing
// to be said.
func (s *Steps) TakeReports() (rows []*pb.Assembled, moved []*pb.Acked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fresh {
		return nil, nil
	}
	for _, step := range s.untold {
		rows = append(rows, s.rows[step]...)
	}
	slices.Sort(s.risen)
	for _, dp := range s.risen {
		s.buckets[dp].risen = false
		moved = append(moved, s.ackedOf(dp))
	}
	s.untold, s.risen = s.untold[:0], s.risen[:0]
	return rows, moved
}
