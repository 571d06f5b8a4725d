package functions

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/sourceloader"
)

// Environments says what the environments that are open do, by name.
func (s *Set) Environments() (all []sourceloader.Environment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, o := range s.opened {
		if !o.ready.Load() {
			continue
		}
		u := o.env.Status()
		e := sourceloader.Environment{
			Name: fmt.Sprintf("%s with %s", key.interpreter, key.path), Runtime: u.Runtime, Workers: u.Workers, Busy: u.Busy, Waiting: u.Waiting,
			Restarts: u.Restarts, LastDeath: u.LastDeath, Problem: u.Problem, Network: !u.NoNetwork,
		}
		if s.pools != nil {
			for _, p := range s.pools.Usage(o.env) {
				e.Pools = append(e.Pools, sourceloader.PoolUsage(p))
			}
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b sourceloader.Environment) int { return strings.Compare(a.Name, b.Name) })
	return all
}
