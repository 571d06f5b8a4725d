package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"
)

// Faults say how often and how badly a network fails. Chances are of each write on a
// connection. The zero value is a network that only takes its time.
type Faults struct {
	Delay time.Duration // longest usual delay of a write
	Slow  float64       // chance that a write takes up to 50 times as long
	Stall float64       // chance that nothing moves for up to StallTime
	Reset float64       // chance that the connection is reset, and what is under way lost
	Hole  float64       // chance that from then on nothing comes through, without a word
	Deny  float64       // chance that a dial is refused

	StallTime time.Duration
}

// Network is a network in memory. It is safe for concurrent use.
type Network struct {
	seed uint64

	mu        sync.Mutex // guards the fields below, never held while waiting
	faults    Faults
	listeners map[string]*listener
	conns     map[*link]struct{}
	dialled   map[string]int       // connections so far, by ends
	apart     map[string]time.Time // hosts that nothing reaches until then
	gone      map[string]bool      // hosts that are dead
	severed   map[string]bool      // by host and address: it never reaches that any more
	counts    Counts
}

// Counts are what happened on a network.
type Counts struct {
	Conns, Writes, Stalls, Resets, Holes, Denied int
}

// NewNetwork returns a network without hosts whose faults are drawn from seed.
func NewNetwork(seed uint64, faults Faults) *Network {
	return &Network{
		seed: seed, faults: faults, listeners: map[string]*listener{}, conns: map[*link]struct{}{},
		dialled: map[string]int{}, apart: map[string]time.Time{}, gone: map[string]bool{}, severed: map[string]bool{},
	}
}

// Host is the network as one host sees it. It implements rpc.Network.
type Host struct {
	network *Network
	name    string
}

// Host returns the host of a name.
func (n *Network) Host(name string) *Host { return &Host{n, name} }

// Calm ends all faults: what is under way arrives, connections that lead nowhere are reset.
func (n *Network) Calm() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = Faults{Delay: n.faults.Delay}
	clear(n.apart)
	for l := range n.conns {
		if l.dead {
			l.reset(syscall.ECONNRESET)
		}
		l.hurry(time.Now().Add(n.faults.Delay))
	}
}

// Kill takes a host off the network, as the end of its process does.
func (n *Network) Kill(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone[host] = true
	for _, l := range n.listeners {
		if l.host == host {
			l.end()
		}
	}
	for l := range n.conns {
		if l.from == host || l.to == host {
			l.reset(syscall.ECONNRESET)
			delete(n.conns, l)
		}
	}
}

// Sever has a host never reach an address any more.
func (n *Network) Sever(host, address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.severed[host+">"+address] = true
	for l := range n.conns {
		if l.from == host && l.address == address {
			l.reset(syscall.ECONNRESET)
			delete(n.conns, l)
		}
	}
}

// Isolate keeps all that a host sends and gets on its way for a time.
func (n *Network) Isolate(host string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.apart[host] = time.Now().Add(d)
}

// Counts returns what happened so far.
func (n *Network) Counts() Counts {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.counts
}

// Listen implements rpc.Network: address is HOST:PORT of this host.
func (h *Host) Listen(address string) (net.Listener, error) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address] != nil {
		return nil, &net.OpError{Op: "listen", Net: "sim", Addr: addr(address), Err: syscall.EADDRINUSE}
	}
	l := &listener{network: n, address: address, host: h.name, accepted: make(chan net.Conn, 64), closed: make(chan struct{})}
	n.listeners[address] = l
	return l, nil
}

// Dial implements rpc.Network.
func (h *Host) Dial(ctx context.Context, address string) (net.Conn, error) {
	n := h.network
	n.mu.Lock()
	ends := h.name + ">" + address
	n.dialled[ends]++
	rng := random(n.seed, fmt.Sprintf("%s#%d", ends, n.dialled[ends]))
	wait := between(rng, n.faults.Delay/10, n.faults.Delay)
	if l := n.listeners[address]; l != nil {
		wait += time.Until(n.apartUntil(h.name, l.host))
	}
	deny := rng.Float64() < n.faults.Deny
	n.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[address]
	if l == nil || deny || n.gone[h.name] || n.gone[l.host] || n.severed[ends] || len(l.accepted) == cap(l.accepted) {
		n.counts.Denied++
		return nil, &net.OpError{Op: "dial", Net: "sim", Addr: addr(address), Err: syscall.ECONNREFUSED}
	}
	n.counts.Conns++
	return n.connect(h.name, l, rng), nil
}

// connect makes a connection between a host and a listener. The lock is held.
func (n *Network) connect(from string, l *listener, rng *rand.Rand) net.Conn {
	k := &link{network: n, from: from, to: l.host, address: l.address}
	for i := range k.pipes {
		k.pipes[i] = newPipe(k, rand.New(rand.NewPCG(rng.Uint64(), uint64(i))))
	}
	n.conns[k] = struct{}{}
	l.accepted <- &conn{k, k.pipes[0], k.pipes[1], addr(l.address), addr(from)}
	return &conn{k, k.pipes[1], k.pipes[0], addr(from), addr(l.address)}
}

// apartUntil is when two hosts can reach each other: now, or later. The lock is held.
func (n *Network) apartUntil(a, b string) time.Time {
	until := time.Now()
	for _, host := range []string{a, b} {
		if t := n.apart[host]; t.After(until) {
			until = t
		}
	}
	return until
}

// listener is one address that a host listens on.
type listener struct {
	network       *Network
	address, host string
	accepted      chan net.Conn
	closed        chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close also resets what nobody accepted. It may be called twice.
func (l *listener) Close() error {
	n := l.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[l.address] == l {
		l.end()
	}
	return nil
}

// end takes a listener off the network. The lock is held.
func (l *listener) end() {
	delete(l.network.listeners, l.address)
	close(l.closed)
	for {
		select {
		case c := <-l.accepted:
			c.(*conn).link.reset(syscall.ECONNRESET)
		default:
			return
		}
	}
}

func (l *listener) Addr() net.Addr { return addr(l.address) }

// addr is an address of a network in memory.
type addr string

// Network implements net.Addr.
func (addr) Network() string { return "sim" }

// String implements net.Addr.
func (a addr) String() string { return string(a) }

// Add adds what happened on another network.
func (c *Counts) Add(o Counts) {
	c.Conns += o.Conns
	c.Writes += o.Writes
	c.Stalls += o.Stalls
	c.Resets += o.Resets
	c.Holes += o.Holes
	c.Denied += o.Denied
}
