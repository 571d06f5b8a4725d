// Package faultproxy is a TCP proxy for tests that does what broken networks and machines do:
// it stops carrying bytes while connections stay open, of all or of those that are open, carries few, or resets them.
//
// It owns the connections through it and never looks at what they carry.
package faultproxy

import (
	"net"
	"sync"
	"time"
)

// Mode is how a proxy treats the bytes of its connections.
type Mode int

// The modes of a proxy. New connections are accepted in all of them.
const (
	Carry   Mode = iota // as they come
	Stall               // not at all: the other side looks stopped, or half open
	Trickle             // one byte a second, each way
)

// Proxy is a TCP proxy. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	wait     sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	changed *sync.Cond // of mu
	target  string
	mode    Mode
	rate    int // bytes a second, of each direction of a connection; 0: any
	closed  bool
	conns   map[*net.TCPConn]bool
	dead    map[*net.TCPConn]bool // of conns: forgotten
	made    int                   // connections so far
}

// Start returns a proxy on a free port of 127.0.0.1. Connections are closed until Forward has
// named a target.
func Start() (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, conns: map[*net.TCPConn]bool{}, dead: map[*net.TCPConn]bool{}}
	p.changed = sync.NewCond(&p.mu)
	p.wait.Go(p.accept)
	return p, nil
}

// Address is where the proxy listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Forward names the address that connections go to from now on.
func (p *Proxy) Forward(target string) { p.update(func() { p.target = target }) }

// Set changes how bytes are treated, of connections that are open, too.
func (p *Proxy) Set(m Mode) { p.update(func() { p.mode = m }) }

// Limit has each direction of a connection carry this many bytes a second, if there are any; 0: any.
func (p *Proxy) Limit(rate int) { p.update(func() { p.rate = rate }) }

// Forget has connections that are open carry nothing any more, without a word, while new ones work: so does a router that
// lost what it knew of them.
func (p *Proxy) Forget() {
	p.update(func() {
		for c := range p.conns {
			p.dead[c] = true
		}
	})
}

// Made is how many connections there were so far.
func (p *Proxy) Made() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made
}

// Reset resets all connections that are open.
func (p *Proxy) Reset() {
	p.update(func() {
		for c := range p.conns {
			_ = c.SetLinger(0) // so that closing resets it; one that is closed already is of no interest
		}
		for c := range p.conns { // after all: whoever carries bytes closes the other side
			c.Close()
		}
	})
}

// Close resets all connections, takes no more, and waits for all that it runs.
func (p *Proxy) Close() {
	p.update(func() { p.closed = true })
	p.listener.Close()
	p.Reset()
	p.wait.Wait()
}

func (p *Proxy) update(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.changed.Broadcast()
}

func (p *Proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wait.Go(func() { p.join(in.(*net.TCPConn)) })
	}
}

// join carries bytes between a connection and one to the target until either ends.
func (p *Proxy) join(in *net.TCPConn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	conn, err := net.Dial("tcp", target)
	if err != nil {
		in.Close()
		return
	}
	out := conn.(*net.TCPConn)
	p.mu.Lock()
	over := p.closed
	p.made++
	p.conns[in], p.conns[out] = true, true
	p.mu.Unlock()
	if over {
		p.Reset()
	}
	var both sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{in, out}, {out, in}} {
		both.Go(func() {
			p.carry(way[1], way[0])
			in.Close()
			out.Close()
		})
	}
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range []*net.TCPConn{in, out} {
		delete(p.conns, c)
		delete(p.dead, c)
	}
}

// carry carries bytes one way.
func (p *Proxy) carry(to, from *net.TCPConn) {
	buf := make([]byte, 32<<10)
	var line pace
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		for rest := buf[:n]; len(rest) > 0; {
			part := rest[:p.room(from, len(rest), &line)]
			rest = rest[len(part):]
			if _, err := to.Write(part); err != nil {
				return
			}
		}
	}
}

// room waits until bytes of a connection are carried, and returns how many of n at a time.
func (p *Proxy) room(of *net.TCPConn, n int, line *pace) int {
	p.mu.Lock()
	for (p.mode == Stall || p.dead[of]) && !p.closed {
		p.changed.Wait()
	}
	slow, rate := p.mode == Trickle && !p.closed, p.rate
	if p.closed {
		rate = 0
	}
	p.mu.Unlock()
	switch {
	case slow:
		time.Sleep(time.Second)
		return 1
	case rate > 0:
		n = min(n, rate/20+1)
		time.Sleep(line.wait(time.Now(), n, rate))
	}
	return n
}

// restAfter is the longest time without bytes that a line makes up for, as a sleep may have taken that long.
const restAfter = 500 * time.Millisecond

// pace is when a line with a limit has carried all that came so far. It goes by a clock: on a machine under load sleeps take longer
// than they are to, and their sum would be far more than the line needs.
type pace struct{ free time.Time }

// wait is for how long n more bytes are on their way.
func (p *pace) wait(now time.Time, n, rate int) time.Duration {
	if now.Sub(p.free) > restAfter {
		p.free = now
	}
	p.free = p.free.Add(time.Duration(n) * time.Second / time.Duration(rate))
	return p.free.Sub(now)
}
