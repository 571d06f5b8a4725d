package deliver

import (
	"slices"

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
	risen     bool // since TakeAcks
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
	s.ack(c)
	return nil
}

// ack notes a rank's position, and releases what no rank needs. The lock is held.
func (s *Steps) ack(c Caller) {
	from := s.acked[c.Rank]
	if c.Acked <= from {
		return
	}
	s.acked[c.Rank], s.advanced[c.Rank] = c.Acked, s.entered
	if b := s.buckets[c.Rank.DP]; b.positions.move(from, c.Acked) {
		s.report(c.Rank.DP, b)
	}
	if s.positions.move(from, c.Acked) {
		s.release(s.positions.low)
	}
}

// report has TakeAcks give a bucket. The lock is held.
func (s *Steps) report(dp uint32, b *bucket) {
	if !b.risen {
		b.risen = true
		s.risen = append(s.risen, dp)
	}
	select {
	case s.acksChanged <- struct{}{}:
	default:
	}
}

// release lets go of the steps before low, which all ranks are done with. It wakes those who
// can go on because of it, not the ranks that wait for later steps. The lock is held.
func (s *Steps) release(low uint64) {
	for k := s.base; k < low; k++ {
		if st := s.ready[k]; st != nil {
			s.held -= st.Bytes
			delete(s.ready, k)
		}
		s.steps.wake(k)
	}
	s.base = low
	s.builders.wakeAll()
	s.lookers.wakeAll()
}

// AcksChanged is sent to when TakeAcks has something to give.
func (s *Steps) AcksChanged() <-chan struct{} { return s.acksChanged }

// TakeAcks returns the buckets whose slowest rank moved since the last call.
func (s *Steps) TakeAcks() (moved []*pb.Acked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.risen)
	for _, dp := range s.risen {
		s.buckets[dp].risen = false
		moved = append(moved, s.ackedOf(dp))
	}
	s.risen = s.risen[:0]
	return moved
}
