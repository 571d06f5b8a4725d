package constructor

import (
	"slices"
	"time"
)

// A fetch that is late is hedged: a second loader is asked, and the first whole answer is
// taken. Both answers have the same bytes, as any loader gives the same for a block.

const (
	// leastPatience and mostPatience bound how late a fetch has to be: far above what a
	// healthy loader takes, and below what a rank with some steps in hand can wait.
	leastPatience = 500 * time.Millisecond
	mostPatience  = 10 * time.Second
	// patienceTimes is how many times as long as all but a hundredth of the last fetches one
	// may take.
	patienceTimes = 2
	// hedgeShare is how many of all fetches may be hedged in the long run, and hedgeBurst how
	// many beyond that at a time, as when several loaders stop at once: what all loaders have
	// to read twice stays small when all of them are slow.
	hedgeShare = 0.05
	hedgeBurst = 16
	// paceKept is how many of the last fetches count, and paceEvery after how many their times
	// are looked at again.
	paceKept, paceEvery = 256, 16
)

// pace is how long fetches take, and what hedges they may have.
type pace struct {
	times    []time.Duration // of the last fetches that the loader asked first answered
	counted  int             // of them, so far
	patience time.Duration
	hedges   float64 // that may be made
	made     uint64
	won      uint64 // fetches that another loader answered first than the one asked first
	moved    uint64 // fetches that went elsewhere since the planner said so
}

func newPace() pace { return pace{patience: leastPatience, hedges: hedgeBurst} }

// done notes that a fetch is done.
func (p *pace) done() { p.hedges = min(p.hedges+hedgeShare, hedgeBurst) }

// took notes how long the loader that was asked first took.
func (p *pace) took(d time.Duration) {
	if len(p.times) < paceKept {
		p.times = append(p.times, d)
	} else {
		p.times[p.counted%paceKept] = d
	}
	if p.counted++; p.counted%paceEvery == 0 {
		sorted := slices.Sorted(slices.Values(p.times))
		p.patience = min(max(patienceTimes*sorted[len(sorted)*99/100], leastPatience), mostPatience)
	}
}

// hedge takes one of the hedges that may be made.
func (p *pace) hedge() bool {
	if p.hedges < 1 {
		return false
	}
	p.hedges--
	p.made++
	return true
}

// paced calls f with the pace.
func (p *peers) paced(f func(*pace)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.pace)
}
