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
	Conns, Writes, Stalls, Resets, Holes, Cuts, Denied int
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
		if l.dead[up] || l.dead[down] {
			n.reset(l)
		} else {
			l.carried.hurry(time.Now().Add(n.faults.Delay))
		}
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
			n.reset(l)
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
			n.reset(l)
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
	l := &listener{network: h.network, address: address, host: h.name, accepted: make(chan net.Conn, 64), closed: make(chan struct{})}
	if err := h.network.open(l); err != nil {
		return nil, err
	}
	return l, nil
}

// open has others reach a listener.
func (n *Network) open(l *listener) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[l.address] != nil {
		return &net.OpError{Op: "listen", Net: "sim", Addr: addr(l.address), Err: syscall.EADDRINUSE}
	}
	n.listeners[l.address] = l
	return nil
}

// Dial implements rpc.Network.
func (h *Host) Dial(ctx context.Context, address string) (c net.Conn, err error) {
	err = h.reach(ctx, address, func(k *link, l *listener, rng *rand.Rand) bool {
		var ps pipes
		for way := range ps {
			ps[way] = newPipe(k, way, rand.New(rand.NewPCG(rng.Uint64(), uint64(way))))
		}
		if k.carried = &ps; len(l.accepted) == cap(l.accepted) {
			return false
		}
		l.accepted <- &conn{k, ps[up], ps[down], addr(l.address), addr(h.name)}
		c = &conn{k, ps[down], ps[up], addr(h.name), addr(l.address)}
		return true
	})
	return c, err
}

// reach connects to who listens at an address, which takes its time. connect, which is called
// with the network's lock held, makes both ends of the connection, or refuses it.
func (h *Host) reach(ctx context.Context, address string, connect func(*link, *listener, *rand.Rand) bool) error {
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
		return ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[address]
	if l != nil && !deny && !n.gone[h.name] && !n.gone[l.host] && !n.severed[ends] {
		k := &link{network: n, from: h.name, to: l.host, address: address}
		if connect(k, l, rng) {
			n.conns[k] = struct{}{}
			n.counts.Conns++
			return nil
		}
	}
	n.counts.Denied++
	return &net.OpError{Op: "dial", Net: "sim", Addr: addr(address), Err: syscall.ECONNREFUSED}
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
	server        *server // in place of accepted, where calls are carried
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
			l.network.reset(c.(*conn).link)
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
	c.Cuts += o.Cuts
	c.Denied += o.Denied
}
