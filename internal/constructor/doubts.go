package constructor

import (
	"slices"
	"time"

	"github.com/millrace-data/millrace/internal/rpc"
)

// A loader may speak with the planner and be of no use to a constructor: the network between
// the two is broken, or the loader answers a byte in a while. So a constructor has doubts of
// its own, beside those of the planner: it leaves out for a while who said nothing, or was
// overtaken by another loader again and again.

const (
	// overtakenTimes is how often in a row another loader has to be first.
	overtakenTimes = 3
	// firstDoubt is how long a loader is left out, twice as long each time up to mostDoubt.
	firstDoubt = 10 * time.Second
	mostDoubt  = 5 * time.Minute
)

// doubts are what a constructor thinks of loaders, by address.
type doubts struct {
	until     map[string]time.Time // they are left out
	times     map[string]int       // that they were, in a row
	overtaken map[string]int       // in a row
}

func newDoubts() doubts {
	return doubts{map[string]time.Time{}, map[string]int{}, map[string]int{}}
}

// without are the places of a view that are open, without those of loaders that are left out;
// all that are, if nobody would be left.
func (d *doubts) without(v *view) []bool {
	now := time.Now()
	open := slices.Clone(v.placed)
	for i := range open {
		open[i] = open[i] && !d.until[v.places[i].address].After(now)
	}
	if !slices.Contains(open, true) {
		return v.placed
	}
	return open
}

// doubt leaves a loader out for a while.
func (p *peers) doubt(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &p.doubts
	if d.until[address].After(time.Now()) || !slices.ContainsFunc(p.now.places, func(x peer) bool { return x.address == address }) {
		return
	}
	pause := min(firstDoubt<<min(d.times[address], 10), mostDoubt)
	d.times[address]++
	d.overtaken[address] = 0
	d.until[address] = time.Now().Add(pause)
	p.refresh()
}

// over says whether the time of a loader that was left out is over.
func (d *doubts) over(now time.Time) (any bool) {
	for address, until := range d.until {
		if !until.After(now) {
			delete(d.until, address)
			any = true
		}
	}
	return any
}

// failed takes note of an attempt that was lost.
func (p *peers) failed(a *attempt) {
	if address, silent := rpc.Silent(a.err); silent {
		p.doubt(address)
	}
}

// overtaken takes note of an attempt that was under way when another one had all samples.
func (p *peers) overtaken(a *attempt) {
	if len(a.groups) != 1 {
		return // who of them was late is not known
	}
	address := a.groups[0].address
	p.mu.Lock()
	p.doubts.overtaken[address]++
	often := p.doubts.overtaken[address] >= overtakenTimes
	p.mu.Unlock()
	if often {
		p.doubt(address)
	}
}

// answered takes note of an attempt that had all samples.
func (p *peers) answered(a *attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range a.groups {
		delete(p.doubts.overtaken, g.address)
		if a.first {
			delete(p.doubts.times, g.address)
		}
	}
}
