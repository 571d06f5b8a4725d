package deliver

import (
	"fmt"
	"maps"
	"slices"
)

// Ranks is where the ranks of a constructor are, and what it has for them.
type Ranks struct {
	Planned, Building, Ready int // steps
	All                      []Place
}

// Place is where a rank is.
type Place struct {
	Rank Rank
	Step uint64 // it is done with those before
}

// Ranks says where all ranks are.
func (s *Steps) Ranks() Ranks {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := Ranks{Planned: len(s.plans), Building: len(s.building), Ready: len(s.ready)}
	for _, dp := range slices.Sorted(maps.Keys(s.buckets)) {
		for _, r := range s.buckets[dp].ranks {
			x.All = append(x.All, Place{r, s.acked[r]})
		}
	}
	return x
}

// Label names the rank where the word rank is said already.
func (r Rank) Label() string { return fmt.Sprintf("dp=%d cp=%d pp=%d tp=%d", r.DP, r.CP, r.PP, r.TP) }
