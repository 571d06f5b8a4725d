package status

import (
	"sync"
	"time"
)

// Pulse is how long this process did not run: it was stopped, or its group of processes had used up its CPU. It beats on a
// goroutine that does nothing else, so what keeps others busy does not delay it. The zero value says that it ran all the time.
type Pulse struct {
	mu   sync.Mutex // guards the rest
	last time.Duration
	lost time.Duration
}

// Beat beats until done is closed. clock is the clock of Lost.
func (p *Pulse) Beat(clock func() time.Duration, done <-chan struct{}) {
	ticks := time.NewTicker(HoldupEvery)
	defer ticks.Stop()
	for {
		p.beat(clock())
		select {
		case <-ticks.C:
		case <-done:
			return
		}
	}
}

func (p *Pulse) beat(now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost += p.late(now)
	p.last = now
}

// late is how much later than it may a beat comes that comes now.
func (p *Pulse) late(now time.Duration) time.Duration {
	if p.last == 0 {
		return 0
	}
	return max(now-p.last-2*HoldupEvery, 0)
}

// Lost is for how long the process has not run in all, though the beat that is to say so may come a moment later.
func (p *Pulse) Lost(now time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost + p.late(now)
}
