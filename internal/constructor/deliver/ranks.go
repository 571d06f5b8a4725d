package deliver

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Ranks is where the ranks of a constructor are, and what it has for them.
type Ranks struct {
	Planned, Building, Ready int // steps
	All                      []Place
}

// Place is where a rank is.
type Place struct {
	Rank Rank
	Step uint64        // it is done with those before
	Wait time.Duration // that its trainer stood still for data; less than 0: it does not say
}

// Ranks says where all ranks are.
func (s *Steps) Ranks() Ranks {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookAtTrainers(time.Now())
	x := Ranks{Planned: len(s.plans), Building: len(s.building), Ready: len(s.ready)}
	for _, dp := range slices.Sorted(maps.Keys(s.buckets)) {
		for _, r := range s.buckets[dp].ranks {
			x.All = append(x.All, Place{r, s.acked[r], s.waitOf(r)})
		}
	}
	return x
}

// waitOf is how long a rank's trainer stood still; less than 0: it does not say. The lock is held.
func (s *Steps) waitOf(r Rank) time.Duration {
	if t := s.trainers[r]; t != nil && t.join > 0 {
		return t.counted
	}
	return -1
}

// Label names the rank where the word rank is said already.
func (r Rank) Label() string { return fmt.Sprintf("dp=%d cp=%d pp=%d tp=%d", r.DP, r.CP, r.PP, r.TP) }
