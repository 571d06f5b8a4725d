package deliver

import (
	"time"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// Fetched counts the time that a fetch from the loaders took.
func (s *Steps) Fetched(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.FetchSeconds += d.Seconds()
}

// Assembled counts the time that laying out a step, or a rank's part of it, took.
func (s *Steps) Assembled(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.AssembleSeconds += d.Seconds()
}

// Delivered counts a batch that is sent to a rank, and notes its way. A rank that has a line asked for a single one by a call.
func (s *Steps) Delivered(r Rank, way Way, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if way.Name != Calls || !s.streams.has(r) {
		s.came(r, way)
	}
	s.counts.DeliveredBytes += uint64(bytes)
	s.counts.DeliveredBatches++
}

// Usage is what the planner hears every second.
func (s *Steps) Usage() *pb.ConstructorUsage {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := &pb.ConstructorUsage{
		HeldBytes: uint64(max(s.held+s.lent, 0)), BudgetBytes: uint64(s.budget), SharedBytes: uint64(s.lent), Ways: s.waysOf(),
		DeliveredBytes: s.counts.DeliveredBytes, DeliveredBatches: s.counts.DeliveredBatches,
		FetchSeconds: s.counts.FetchSeconds, WaitSeconds: s.counts.WaitSeconds,
		Generation: s.generation, Absent: uint32(len(s.acked) - len(s.asked)), AbsentRanks: s.absent(), Slowest: s.slowestOfAll(), Refused: s.refusedText(),
		Trainers: s.trainersUsage(), AssembleSeconds: s.counts.AssembleSeconds, Left: s.leavers(),
	}
	if step, so := s.crowded(); so {
		u.Crowded = step + 1
	}
	return u
}

// Fetchers is the number of ranks that fetch here.
func (s *Steps) Fetchers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.acked)
}

// Away is the number of these that have neither a stream nor a line now: they have yet to come, or have ended and may
// be started again. One that asks by calls is among them, as nobody knows whether it still has its connection.
func (s *Steps) Away() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.acked {
		if !s.streams.has(r) {
			n++
		}
	}
	return n
}

// refusedText names a rank that is refused and still there; "" if there is none. The lock is held.
func (s *Steps) refusedText() string {
	if q, _, ok := s.outcast(time.Now()); ok {
		return s.outcastText(q)
	}
	return ""
}

// slowestOfAll says how far each bucket is. The lock is held.
func (s *Steps) slowestOfAll() (all []*pb.Acked) {
	for _, dp := range s.job.GetBuckets() {
		all = append(all, s.ackedOf(dp))
	}
	return all
}

// maxAbsent are the ranks that are named: enough to see a pattern, such as a host.
const maxAbsent = 8

// absent are the first ranks that have not asked for a batch. The lock is held.
func (s *Steps) absent() (ranks []*pb.Coordinates) {
	if len(s.asked) == len(s.acked) {
		return nil
	}
	for _, dp := range s.job.GetBuckets() {
		for _, r := range s.buckets[dp].ranks {
			if _, asked := s.asked[r]; !asked {
				ranks = append(ranks, r.wire())
			}
			if len(ranks) == maxAbsent {
				return ranks
			}
		}
	}
	return ranks
}
