package worker

import (
	"context"
	"slices"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

// Seats are places for one batch in flight. Those of workers here are handed round; those of pools on other
// machines are counted: a pool has seats as long as fewer batches are on the way to it than keep its workers busy.

const (
	// mostAway is the bytes of batches that may be on the way to pools, for an environment: of the default
	// size 64 of them, which is 50 ms of a link of 10 Gbit/s. A larger batch goes alone.
	mostAway = 64 << 20
	// alonePatience is how long a call waits where neither a worker here nor a pool serves it: a machine that
	// was preempted is back in minutes, and trainers wait for the batch meanwhile.
	alonePatience = 10 * time.Minute
)

// waiter is a call that waits for a seat.
type waiter struct {
	function string
	need     Need       // of GPUs
	size     int        // bytes of its batch
	fresh    bool       // it wants a worker that was never given a job, for itself
	drains   *process   // then: the one that makes room for such a worker
	seat     chan *seat // takes one; nil: it waits in vain
	err      error      // then: why
}

// far is a pool as an environment sees it.
type far struct {
	pool      Pool
	need      Need // of those that it serves
	workers   int
	functions []string // that it serves
	taken     int      // batches on the way
}

// Seats is how many calls at a time keep all workers busy that run the function, those of pools included.
func (f *Function) Seats() int {
	own, there := f.OwnSeats(), 0
	e := f.env
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, far := range e.far {
		if far.need == f.need {
			there += seatsEach * far.workers
		}
	}
	return own + min(there, max(mostAway/e.opt.BatchBytes, 1))
}

// OwnSeats are those of the workers here.
func (f *Function) OwnSeats() int { return seatsEach * f.Slots() }

// Served reports whether a pool runs the function now.
func (f *Function) Served() bool {
	f.env.mu.Lock()
	defer f.env.mu.Unlock()
	return slices.ContainsFunc(f.env.far, func(far *far) bool { return slices.Contains(far.functions, f.use.Name) })
}

// Join has a pool run batches of a function, with as many workers as it says, until it leaves. Batches that
// wait go to it at once.
func (e *Environment) Join(pool Pool, function string, workers int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := e.described[function]
	need, _ := needOf(&d) // whoever opened it here has seen the error
	at := slices.IndexFunc(e.far, func(f *far) bool { return f.pool == pool && f.need == need })
	if at < 0 {
		at = len(e.far)
		e.far = append(e.far, &far{pool: pool, need: need})
	}
	f := e.far[at]
	f.workers, f.functions = workers, append(f.functions, function)
	e.pump()
}

// Leave has a pool get no more batches. What it has it may finish. Where no worker can be forked here, calls wait for some
// attempts more: the pool may be back meanwhile.
func (e *Environment) Leave(pool Pool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.far = slices.DeleteFunc(e.far, func(f *far) bool { return f.pool == pool })
	for _, f := range e.forks {
		f.failures, f.unforkable = 0, nil
	}
}

// acquire returns a seat for a batch of a function: of the worker or the pool that has least to do, or if fresh of a worker
// that does this and nothing else, or of a pool that sees to it.
func (e *Environment) acquire(ctx context.Context, f *Function, size int, fresh bool) (*seat, error) {
	e.mu.Lock()
	w := &waiter{function: f.use.Name, need: f.need, size: size, fresh: fresh, seat: make(chan *seat, 1)}
	if err := e.hopeless(w); err != nil {
		e.mu.Unlock()
		return nil, err
	}
	e.waiting = append(e.waiting, w)
	if e.pump(); len(e.waiting) > 0 {
		e.hurry()
	}
	e.mu.Unlock()
	select {
	case s := <-w.seat: // of most calls there is one, and no clock is needed
		return s, w.err
	default:
	}
	late := time.NewTimer(alonePatience)
	defer late.Stop()
	for {
		select {
		case s := <-w.seat:
			return s, w.err
		case <-ctx.Done():
			e.unwait(w)
			return nil, ctx.Err()
		case <-late.C:
			if f.Slots() == 0 && !f.Served() {
				e.unwait(w)
				return nil, fault.Lostf("no worker pool has served it for %v, and there are no workers for it here", alonePatience)
			}
			late.Reset(alonePatience)
		}
	}
}

// hurry has a worker come that rests, if there is one.
func (e *Environment) hurry() {
	select {
	case e.called <- struct{}{}:
	default:
	}
}

// pump gives seats to those who wait longest, and new workers to those who want one first. The caller has mu.
func (e *Environment) pump() {
	for _, fresh := range []bool{true, false} {
		e.waiting = slices.DeleteFunc(e.waiting, func(w *waiter) bool {
			if w.fresh != fresh {
				return false
			}
			s := e.take(w)
			if s != nil {
				w.seat <- s
			}
			return s != nil
		})
	}
}

// take removes the best seat for a call, one of a worker here if a pool's is no better; nil if there is none. Under
// pressure one call at a time is with the workers here. The caller has mu.
func (e *Environment) take(w *waiter) *seat {
	best, least := -1, seatsEach
	here := e.taken == 0 || len(e.pressing) == 0
	switch {
	case here && w.fresh:
		best, least = e.unused(w)
	case here:
		best, least = e.leastBusy(w)
	}
	s := e.takeFar(w, least)
	switch {
	case s != nil:
	case best >= 0:
		s = e.free[best]
		e.free = slices.Delete(e.free, best, best+1)
		if w.fresh {
			e.free = slices.DeleteFunc(e.free, func(other *seat) bool {
				if other.process == s.process {
					s.beside = other
				}
				return other.process == s.process
			})
		}
		e.taken++
	case here && w.fresh:
		e.drain(w)
	}
	if s != nil {
		e.undrain(w)
	}
	return s
}

// leastBusy is the free seat of the worker that has least to do, and how much that is. Of several it is the one that worked
// last, whose memory is in the processor's caches. The caller has mu.
func (e *Environment) leastBusy(w *waiter) (best, least int) {
	best, least = -1, seatsEach
	for i, s := range e.free {
		if s.process.need != w.need || s.process.draining {
			continue
		}
		if busy := s.process.busy(); best < 0 || busy <= least {
			best, least = i, busy
		}
	}
	return best, least
}

// unused is a free seat of a worker that was never given a job. The caller has mu.
func (e *Environment) unused(w *waiter) (at, busy int) {
	at = slices.IndexFunc(e.free, func(s *seat) bool {
		return s.process.need == w.need && !s.process.tried() && e.freeOf(s.process) == seatsEach
	})
	if at < 0 {
		return at, seatsEach
	}
	return at, 0
}

// freeOf is the number of free seats of a worker. The caller has mu.
func (e *Environment) freeOf(p *process) (n int) {
	for _, s := range e.free {
		if s.process == p {
			n++
		}
	}
	return n
}

// drain has a worker get no more jobs, and ends it when it has none: a new one comes in its place. The caller has mu.
func (e *Environment) drain(w *waiter) {
	if w.drains == nil || w.drains.ended() {
		w.drains = nil
		for _, s := range e.free {
			if p := s.process; p.need == w.need && !p.draining && (w.drains == nil || e.freeOf(p) > e.freeOf(w.drains)) {
				w.drains = p
			}
		}
		if w.drains == nil {
			return
		}
		w.drains.draining = true
	}
	if e.freeOf(w.drains) == seatsEach {
		w.drains.renew("a row is to be tried in a new one")
	}
}

// undrain has the worker that a call drains get jobs again, if it is there. The caller has mu.
func (e *Environment) undrain(w *waiter) {
	if w.drains != nil {
		w.drains.draining = false
	}
}

// takeFar takes a seat of the pool that has least to do, less than the workers here; nil if there is none. The caller has mu.
func (e *Environment) takeFar(w *waiter, least int) *seat {
	var there *far
	if e.away == 0 || e.away+w.size <= mostAway>>e.shift.Load() {
		for _, f := range e.far {
			if load := f.taken / f.workers; load < least && slices.Contains(f.functions, w.function) {
				there, least = f, load
			}
		}
	}
	if there == nil {
		return nil
	}
	there.taken++
	e.away += w.size
	return &seat{far: there, size: w.size}
}

// unwait gives up a wait whose caller has gone, and the seat if it has come already.
func (e *Environment) unwait(w *waiter) {
	e.mu.Lock()
	e.waiting = slices.DeleteFunc(e.waiting, func(other *waiter) bool { return other == w })
	e.undrain(w)
	e.pump()
	e.mu.Unlock()
	select {
	case s := <-w.seat:
		if s != nil {
			e.release(s)
		}
	default:
	}
}

// release takes a seat back.
func (e *Environment) release(s *seat) {
	if s.far == nil {
		s.in.trim()
		s.out.trim()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.far != nil {
		s.far.taken--
		e.away -= s.size
		e.pump()
		return
	}
	e.taken--
	both := []*seat{s}
	if s.beside != nil {
		both = append(both, s.beside)
		s.beside = nil
	}
	if s.process.ended() {
		for _, s := range both {
			s.close()
		}
	} else {
		e.free = append(e.free, both...)
	}
	e.pump()
}

// add offers the seats of a new worker: the first ones of all before second ones.
func (e *Environment) add(p *process) {
	p.release = e.release
	p.settled(&Reply{Held: memoryOf(p.pid), Own: privateOf(p.pid)})
	p.server.enter(p)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.free = append(e.free, p.seats[:]...)
	e.forked(p.need)
	e.pump()
}

// remove takes away the free seats of a worker that is gone. Those in use go when they
// are released.
func (e *Environment) remove(p *process) {
	p.server.leave(p)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.free = slices.DeleteFunc(e.free, func(s *seat) bool {
		if s.process == p {
			s.close()
		}
		return s.process == p
	})
	_ = p.wire.conn.Close()
}

// fail has all who wait, and all who come, hear why.
func (e *Environment) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failure = err
	e.dismiss()
}
