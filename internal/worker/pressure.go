package worker

import (
	"fmt"
	"time"
)

// The memory of workers counts in the limit of whoever calls them, but for what they had when they were set
// up, a model for example, and settled.

const (
	// settled is what a worker may hold beyond that without its counting, in bytes: Python's arenas, and what
	// the allocator keeps for the next batch (MALLOC_TRIM_THRESHOLD_).
	settled = 32 << 20
	// measureEvery is how often the memory of all workers is added up: to read it takes the kernel a
	// millisecond for each GB.
	measureEvery = 100 * time.Millisecond
	// idleLooks is how often a worker without work is looked at: what it gives back it gives back at once.
	idleLooks = 3
	// mostShift bounds how often batches are halved under pressure: to a 64th.
	mostShift = 6
)

// Held is how many bytes workers have beyond what they had when they were set up, and 32 MiB each, and how many are
// on the way to pools.
func (e *Environment) Held() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.held.Load() + int64(e.away)
}

// Press has workers take less memory for as long as anybody presses: one call at a time, smaller batches, and a new
// worker in the place of each that holds much and has nothing to do.
func (e *Environment) Press(who any, on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := len(e.pressing) > 0
	if on {
		e.pressing[who] = true
	} else {
		delete(e.pressing, who)
	}
	if after := len(e.pressing) > 0; after != before {
		if after {
			e.opt.Log.Warn("functions hold more memory than they may: one call at a time, with smaller batches", "held_mb", e.held.Load()>>20)
		}
		e.pump()
	}
}

// measure adds up what workers hold, and ends idle ones under pressure.
func (e *Environment) measure(s *server) {
	e.mu.Lock()
	pressed := len(e.pressing) > 0
	e.mu.Unlock()
	sum := int64(0)
	for _, p := range s.processes() {
		beyond := p.private() - p.base.Load() - settled
		if beyond <= 0 {
			continue
		}
		sum += beyond
		if pressed {
			p.renew("it held memory that others need")
		}
	}
	e.held.Store(sum)
	switch shift := e.shift.Load(); {
	case pressed && shift < mostShift:
		e.shift.Store(shift + 1)
	case !pressed && shift > 0:
		e.shift.Store(shift - 1)
	}
}

// private is the memory of a worker that no other process shares. One that has done nothing since it was looked at is
// not asked again. It is for the goroutine that watches.
func (p *process) private() int64 {
	p.mu.Lock()
	if p.calls != p.seen || len(p.queue) > 0 {
		p.seen, p.looks = p.calls, 0
	}
	p.mu.Unlock()
	if p.looks < idleLooks {
		p.looks++
		p.own = privateOf(p.pid)
	}
	return p.own
}

// settled notes what a worker holds after a setup, as it says itself: by now it may work on the next job.
func (p *process) settled(r *Reply) {
	p.base.Store(max(r.Own, p.base.Load()))
	p.idle.Store(max(r.Held, p.idle.Load()))
}

// outgrown ends a worker that holds more memory than it may.
func (p *process) outgrown(most int64) {
	p.mu.Lock()
	p.big = p.big || p.cause == ""
	p.mu.Unlock()
	p.kill(fmt.Sprintf("it held more memory than its limit of %d MiB", most>>20))
}

// tooLarge ends a worker that held more memory than it may while it worked, now or at any time before: the kernel knows,
// but while the worker works on the next job already, what it held in its setup it says itself. What one held that is
// gone by now nobody knows: its answer may have come with the end that it was given for its memory.
func (p *process) tooLarge(j *job, reply *Reply) bool {
	most, peak := p.server.opt.Memory, reply.Peak
	if !j.setup {
		peak = peakOf(p.pid)
	}
	if peak > most {
		p.outgrown(most)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return peak > most || p.big || peak == 0 && !j.setup
}
