package sim

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// link is one connection: of bytes in two pipes, or of calls on a line.
type link struct {
	network  *Network
	from, to string // hosts
	address  string // that was dialled
	carried  interface {
		fail(err error)
		hurry(by time.Time)
	}
	dead [2]bool // nothing comes through in a direction any more; the network's lock guards it
}

// pipes are the two directions of a connection, which fail together.
type pipes [2]*pipe

// fail breaks both directions. Its caller holds the network's lock.
func (ps *pipes) fail(err error) {
	for _, p := range ps {
		p.fail(err)
	}
}

// hurry has all that is under way arrive by a time.
func (ps *pipes) hurry(by time.Time) {
	for _, p := range ps {
		p.hurry(by)
	}
}

// segment is what one write put on the way. Without data it is the end.
type segment struct {
	data []byte
	due  time.Time
}

// pipe is one direction of a connection: it keeps the order of writes, as TCP does.
type pipe struct {
	link *link
	way  int // up or down
	rng  *rand.Rand
	wake chan struct{} // nudges the reader

	timer *time.Timer // the reader's

	mu       sync.Mutex // guards the fields below, never held while waiting
	queue    []segment
	spare    [][]byte // memory of segments that were read
	rest     []byte   // of the first segment
	err      error    // for reader and writer, at once
	closed   bool     // by its reader
	ended    bool     // by its writer
	last     time.Time
	deadline time.Time // of reads
}

func newPipe(l *link, way int, rng *rand.Rand) *pipe {
	return &pipe{link: l, way: way, rng: rng, wake: make(chan struct{}, 1)}
}

func (p *pipe) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
		nudge(p.wake)
	}
}

func (p *pipe) hurry(by time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.queue {
		if p.queue[i].due.After(by) {
			p.queue[i].due = by
		}
	}
	if p.last.After(by) {
		p.last = by
	}
	nudge(p.wake)
}

// read waits for data that is due.
func (p *pipe) read(b []byte) (int, error) {
	for {
		n, wait, err := p.take(b)
		if n > 0 || err != nil {
			return n, err
		}
		if wait < 0 {
			<-p.wake
			continue
		}
		if p.timer == nil {
			p.timer = time.NewTimer(wait)
		} else {
			p.timer.Reset(wait)
		}
		select {
		case <-p.wake:
			p.timer.Stop()
		case <-p.timer.C:
		}
	}
}

// take takes what is due, or says how long to wait for it; below zero: until it is nudged.
func (p *pipe) take(b []byte) (n int, wait time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, 0, net.ErrClosed
	}
	if p.err != nil {
		return 0, 0, p.err
	}
	now := time.Now()
	if !p.deadline.IsZero() && !now.Before(p.deadline) {
		return 0, 0, os.ErrDeadlineExceeded
	}
	wait = -1
	if len(p.queue) > 0 {
		first := &p.queue[0]
		if wait = first.due.Sub(now); wait <= 0 {
			return p.consume(first, b)
		}
	}
	if left := p.deadline.Sub(now); !p.deadline.IsZero() && (wait < 0 || left < wait) {
		wait = left
	}
	return 0, wait, nil
}

// consume reads from the first segment, which is due.
func (p *pipe) consume(first *segment, b []byte) (int, time.Duration, error) {
	if first.data == nil {
		return 0, 0, io.EOF
	}
	if p.rest == nil {
		p.rest = first.data
	}
	n := copy(b, p.rest)
	if p.rest = p.rest[n:]; len(p.rest) == 0 {
		p.spare = append(p.spare, first.data[:0])
		p.queue, p.rest = p.queue[1:], nil
	}
	return n, 0, nil
}

// write puts b on the way. It never waits: what is under way is bounded by gRPC's windows.
func (p *pipe) write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	p.mu.Lock()
	err, closed := p.err, p.closed
	p.mu.Unlock()
	if err != nil {
		return 0, err
	}
	f := p.link.network.draw(p.link, p.way, p.rng)
	if f.torn {
		return 0, syscall.ECONNRESET
	}
	if f.lost || closed {
		return len(b), nil
	}
	p.put(b, f.due)
	return len(b), nil
}

// put queues a segment; b == nil is the end.
func (p *pipe) put(b []byte, due time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	if due.Before(p.last) {
		due = p.last
	}
	p.last = due
	s := segment{due: due}
	if p.ended = b == nil; b != nil {
		var room []byte
		if n := len(p.spare); n > 0 {
			room, p.spare = p.spare[n-1], p.spare[:n-1]
		}
		s.data = append(room, b...)
	}
	if p.queue = append(p.queue, s); len(p.queue) == 1 {
		nudge(p.wake)
	}
}

// conn is one end of a connection.
type conn struct {
	link          *link
	in, out       *pipe
	local, remote addr
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	return n, c.wrap("read", err)
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.out.write(b)
	return n, c.wrap("write", err)
}

// wrap says of an error what the operating system's network would.
func (c *conn) wrap(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "sim", Source: c.local, Addr: c.remote, Err: err}
}

// Close ends both directions: the other end reads what was written, and then io.EOF.
func (c *conn) Close() error {
	c.in.mu.Lock()
	was := c.in.closed
	c.in.closed = true
	c.in.queue, c.in.rest = nil, nil
	nudge(c.in.wake)
	c.in.mu.Unlock()
	if was {
		return net.ErrClosed
	}
	if f := c.link.network.draw(c.link, c.out.way, c.out.rng); !f.lost && !f.torn {
		c.out.put(nil, f.due)
	}
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.deadline = t
	nudge(c.in.wake)
	return nil
}

// SetWriteDeadline has nothing to do: writes do not wait.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
