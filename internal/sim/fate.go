package sim

import (
	"math/rand/v2"
	"syscall"
	"time"
)

// Faults say how often and how badly a network fails. Chances are of each write on a
// connection, or of each message of a call. The zero value is a network that only takes its
// time.
type Faults struct {
	Delay time.Duration // longest usual delay of a write
	Slow  float64       // chance that a write takes up to 50 times as long
	Stall float64       // chance that nothing moves for up to StallTime
	Reset float64       // chance that the connection is reset, and what is under way lost
	Hole  float64       // chance that from then on nothing comes through, in one direction or both, without a word
	Deny  float64       // chance that a dial is refused
	Cut   float64       // chance that a call breaks alone, where the network carries calls

	StallTime time.Duration
}

// The directions of a connection.
const (
	up   = 0 // to who listens
	down = 1
)

// fate is what the network makes of one write.
type fate struct {
	due        time.Time
	lost, torn bool
	cut        bool // the call
}

// draw decides what becomes of a write.
func (n *Network) draw(l *link, way int, rng *rand.Rand) (f fate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counts.Writes++
	faults := &n.faults
	d := between(rng, faults.Delay/10, faults.Delay)
	u := rng.Float64()
	if u < faults.Slow {
		d *= 1 + time.Duration(rng.IntN(50))
	}
	if u -= faults.Slow; u >= 0 && u < faults.Stall {
		d += between(rng, 0, faults.StallTime)
		n.counts.Stalls++
	}
	if u -= faults.Stall; u >= 0 && u < faults.Reset {
		f.torn = true
		n.counts.Resets++
		n.reset(l)
	}
	if u -= faults.Reset; u >= 0 && u < faults.Hole && !l.dead[way] {
		l.dead[way] = true
		l.dead[1-way] = l.dead[1-way] || rng.IntN(2) == 0
		n.counts.Holes++
	}
	if u -= faults.Hole; u >= 0 && u < faults.Cut {
		f.cut = true
		n.counts.Cuts++
	}
	f.lost, f.due = l.dead[way], n.apartUntil(l.from, l.to).Add(d)
	return f
}

// reset breaks a connection. The lock is held.
func (n *Network) reset(l *link) {
	delete(n.conns, l)
	l.carried.fail(syscall.ECONNRESET)
}

// forget drops a connection that is broken.
func (n *Network) forget(l *link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, l)
}
