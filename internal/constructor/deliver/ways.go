package deliver

import (
	"cmp"
	"maps"
	"slices"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// Way is how a rank gets its batches, and why not in a better way, if that is known.
type Way struct{ Name, Reason string }

// The ways.
const (
	Shared = "shared" // in memory that it maps
	Socket = "socket" // through a socket of the same machine, as there is no such memory
	Stream = "stream"
	Calls  = "calls"
	Gone   = "gone" // in none: its line has ended, and it has not come back
)

// came notes the way of a rank's batches. The first that is asked of a rank may be of none that is here. The lock is held.
func (s *Steps) came(r Rank, way Way) {
	if _, here := s.acked[r]; here {
		s.ways[r] = way
	}
}

// has says whether a rank is here.
func (w *waiters) has(r Rank) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.of[r]) > 0
}

// waysOf groups ranks by how they get their batches. The lock is held.
func (s *Steps) waysOf() (all []*pb.Delivery) {
	groups := map[Way]*pb.Delivery{}
	for _, r := range slices.SortedFunc(maps.Keys(s.ways), Rank.compare) {
		way := s.ways[r]
		if way.Name != Calls && !s.streams.has(r) {
			way = Way{Name: Gone}
		}
		g := groups[way]
		if g == nil {
			g = &pb.Delivery{Way: way.Name, Reason: way.Reason}
			groups[way], all = g, append(all, g)
		}
		if g.Ranks++; g.Ranks <= maxAbsent {
			g.First = append(g.First, r.wire())
		}
	}
	return all
}

func (r Rank) compare(other Rank) int {
	return cmp.Or(cmp.Compare(r.DP, other.DP), cmp.Compare(r.CP, other.CP), cmp.Compare(r.PP, other.PP), cmp.Compare(r.TP, other.TP))
}

// lendShare is the part of the budget that memory which ranks map may take: steps have at least as much.
const lendShare = 2

// SetAside keeps bytes of the budget for memory that ranks are to map, if that has as many left: steps are not built in
// them from now on. Lend takes them, or Forgo.
func (s *Steps) SetAside(bytes int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lent+s.aside+bytes > s.budget/lendShare {
		return false
	}
	s.aside += bytes
	return true
}

// Lend says that bytes which were set aside are free, and takes them: steps that were there before may have them still.
// A single step is not waited for, however large it is.
func (s *Steps) Lend(bytes int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held+s.lent+bytes > s.budget && len(s.ready)+len(s.building) > 1 {
		return false
	}
	s.aside -= bytes
	s.lent += bytes
	return true
}

// Forgo returns what SetAside kept.
func (s *Steps) Forgo(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aside -= bytes
	s.builders.wakeAll()
}

// GiveBack returns what Lend took.
func (s *Steps) GiveBack(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lent -= bytes
	s.builders.wakeAll()
}

// fits says whether the budget has some bytes left. The lock is held.
func (s *Steps) fits(bytes int64) bool { return s.held+s.lent+s.aside+bytes <= s.budget }
