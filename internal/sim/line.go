package sim

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// aliveTime is how long a connection on which nothing comes through is kept: gRPC asks after
// ten seconds, and gives up ten seconds later.
const aliveTime = 20 * time.Second

var errQuiet = errors.New("nothing has come through for 20 s")

// line is a connection that carries calls. Their messages keep their order in each direction,
// as on one of TCP.
type line struct {
	*link
	conn   *caller
	server *server
	rngs   [2]*rand.Rand // the network's lock guards them

	mu    sync.Mutex // guards the fields below, never held while waiting
	last  [2]time.Time
	calls map[*call]struct{}
	err   error // it is broken
	quiet bool  // it is going to break
}

// send puts a message of a call on the way. It fails if that breaks the connection or the call.
func (l *line) send(c *call, way int, m message) error {
	f := l.network.draw(l.link, way, l.rngs[way])
	if f.cut {
		c.breakOff(errCut)
	}
	if f.torn || f.cut {
		return errCut // of the connection, for all that this call knows
	}
	if f.lost {
		m.data.Free()
		l.fallQuiet()
		return nil
	}
	m.due = l.inOrder(way, f.due)
	if time.Until(m.due) > aliveTime {
		l.fallQuiet()
	}
	c.flows[way].put(m)
	if way == up {
		c.arrive()
	}
	return nil
}

// inOrder is when something comes that would by itself be due then.
func (l *line) inOrder(way int, due time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if due.Before(l.last[way]) {
		due = l.last[way]
	}
	l.last[way] = due
	return due
}

// fallQuiet breaks the connection when its ends have noticed that nothing comes through.
func (l *line) fallQuiet() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.quiet {
		l.quiet = true
		time.AfterFunc(aliveTime, func() { l.network.forget(l.link); l.fail(errQuiet) })
	}
}

// begin adds a call, unless the connection is broken.
func (l *line) begin(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false
	}
	l.calls[c] = struct{}{}
	return true
}

// end removes a call after both of its sides have ended.
func (l *line) end(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, c)
}

// fail breaks the connection, and all calls on it.
func (l *line) fail(err error) {
	l.mu.Lock()
	calls := l.calls
	if l.err == nil {
		l.err, l.calls = err, nil
	}
	l.mu.Unlock()
	for c := range calls {
		c.breakOff(err)
	}
	l.conn.lose(l)
	l.server.lose(l)
}

// hurry has all that is under way arrive by a time.
func (l *line) hurry(by time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for way, last := range l.last {
		if last.After(by) {
			l.last[way] = by
		}
	}
	for c := range l.calls {
		c.flows[up].hurry(by)
		c.flows[down].hurry(by)
	}
}

// abandon ends all calls, as their client closes the connection.
func (l *line) abandon(err error) {
	l.mu.Lock()
	calls := slices.Collect(maps.Keys(l.calls))
	l.mu.Unlock()
	for _, c := range calls {
		c.abandon(err)
	}
	l.network.forget(l.link)
	l.server.lose(l)
}
