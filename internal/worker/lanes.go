package worker

import (
	"context"
	"sync"
	"time"
)

// lane is the workers of an environment whose functions need the same of GPUs.
type lane struct{ claim *claim }

// dealEvery is how often lanes look whether they get more devices, or fewer: it is milliseconds of work a day, and
// a function that is opened waits for it once.
const dealEvery = 50 * time.Millisecond

// lane makes sure that workers with a need are started, as far as there are devices. It returns how many.
func (e *Environment) lane(n Need) int {
	if !n.any() {
		return e.opt.Workers
	}
	gpus := e.gpus()
	if gpus.Len() == 0 {
		return 0
	}
	e.mu.Lock()
	l := e.lanes[n]
	if l == nil {
		l = &lane{gpus.claim(n)}
		e.lanes[n] = l
	}
	e.mu.Unlock()
	return l.claim.target()
}

// gpus are the devices of this process, which are looked for the first time that a function needs one.
func (e *Environment) gpus() *GPUs {
	if e.opt.GPUs == nil {
		return nil
	}
	return e.opt.GPUs()
}

// claims are those of all lanes.
func (e *Environment) claims() (all []*claim) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.lanes {
		all = append(all, l.claim)
	}
	return all
}

// tend has a worker on each share of a device that lanes get, until the server is gone or ctx ends.
func (e *Environment) tend(ctx context.Context, s *server) {
	var workers sync.WaitGroup
	defer workers.Wait()
	tick := time.NewTicker(dealEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.gone:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, c := range e.claims() {
			for own := c.take(); own != nil; own = c.take() {
				workers.Go(func() {
					defer own.give()
					e.work(ctx, s, own)
				})
			}
		}
	}
}

// run reads what a worker answers until it ends, or its share is to be given back: it ends then, and what it had runs
// elsewhere.
func (s *share) run(p *process) (revoked bool) {
	if s == nil {
		p.read()
		return false
	}
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-s.revoked:
			p.retire("its GPU goes to workers of another function")
		case <-ended:
		}
	})
	p.read()
	close(ended)
	watch.Wait()
	return closed(s.revoked)
}

// wait waits before a worker is forked again, or until its share is to be given back: what it could not use, another
// function's worker may. s may be nil.
func (s *share) wait(ctx context.Context, d time.Duration) (revoked bool) {
	if s == nil {
		sleep(ctx, d)
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-s.revoked:
	}
	return closed(s.revoked)
}

// Slots is how many workers here run a function that needs this much of GPUs.
func (f *Function) Slots() int { return f.env.lane(f.need) }

// Slots is how many workers here run a function that was described.
func (e *Environment) Slots(function string) int {
	e.mu.Lock()
	d := e.described[function]
	e.mu.Unlock()
	need, err := needOf(&d)
	if err != nil {
		return 0
	}
	return e.lane(need)
}
