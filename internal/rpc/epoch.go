package rpc

import (
	"sync/atomic"

	"github.com/millrace-data/millrace/internal/fault"
)

// Epochs is what a process knows of the epochs of planners: the highest that anyone named. What
// a planner of a lower one says is refused, and counted. The zero value is ready; it is safe for
// concurrent use.
type Epochs struct {
	highest atomic.Uint64
	refused atomic.Uint64 // so far
	told    atomic.Uint64 // of them, those that a planner has heard of
}

// Highest is the highest epoch so far; 0 if there is none.
func (e *Epochs) Highest() uint64 { return e.highest.Load() }

// Refused is how often a planner was refused so far.
func (e *Epochs) Refused() uint64 { return e.refused.Load() }

// Hear takes an epoch that somebody names who is no planner. 0 is none.
func (e *Epochs) Hear(epoch uint64) {
	for highest := e.highest.Load(); epoch > highest && !e.highest.CompareAndSwap(highest, epoch); {
		highest = e.highest.Load()
	}
}

// Check takes the epoch of a planner, with whatever it says. An error of class fault.Lost refuses
// that: another planner took its place, and it does not know. One of no epoch, 0, has not the job's log.
func (e *Epochs) Check(epoch uint64) error {
	e.Hear(epoch)
	if highest := e.highest.Load(); epoch == 0 && highest > 0 {
		return fault.Lostf("it keeps no log, has not opened it, or failed: see what it logs, or `millrace status` (the planner before it had epoch %d; refused %d times so far)", highest, e.refused.Add(1))
	} else if epoch < highest {
		return fault.Lostf("it is the planner of epoch %d, and another one took over with epoch %d: stop the former (refused %d times so far)", epoch, highest, e.refused.Add(1))
	}
	return nil
}

// Tell is what a request says of this: the highest epoch, and how many answers were refused since
// a planner last heard of it. When the request is answered, told is to be called.
func (e *Epochs) Tell() (highest uint64, refused uint32, told func()) {
	known, all := e.told.Load(), e.refused.Load()
	return e.Highest(), uint32(all - known), func() { e.told.CompareAndSwap(known, all) }
}
