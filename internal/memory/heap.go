package memory

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// Go's collector works harder as the heap comes near a limit. What child processes take of the memory of this one
// the heap may not fill with garbage, so the limit goes down for as long as they have it. What thousands of clients need is in no
// budget: it goes up for as long as they are there, or the collector would do little else.

// heap is the limit of this process.
var heap struct {
	mu             sync.Mutex // guards the fields below
	limit, outside int64      // bytes; without a limit what is outside changes nothing
	clients, known int64      // bytes that clients need, and as much of them as the collector knows of
	most           int64      // up to which clients add to the limit; 0: there is none
}

// clientsAtOnce is by how much the need of clients changes until the collector hears of it, which stops the process for a moment.
const clientsAtOnce = 8 << 20

// leastHeap is the part of the limit that the heap has whatever children take: with less the collector would
// do little else.
const leastHeap = 4

// Limit sets the limit of Go's collector, of which children take their part; 0 takes it away.
func Limit(bytes int64) {
	heap.mu.Lock()
	defer heap.mu.Unlock()
	heap.limit = bytes
	setLimit()
}

// Outside counts bytes that child processes take of the limit, or give back, below zero.
func Outside(bytes int64) {
	if bytes == 0 {
		return
	}
	heap.mu.Lock()
	defer heap.mu.Unlock()
	heap.outside += bytes
	setLimit()
}

// Clients counts bytes that clients need beside the limit, or no longer do, below zero. Like all functions here it is safe for
// concurrent use.
func Clients(bytes int64) {
	heap.mu.Lock()
	defer heap.mu.Unlock()
	heap.clients += bytes
	if by := heap.clients - heap.known; by >= clientsAtOnce || by <= -clientsAtOnce {
		setLimit()
	}
}

// ClientsUpTo has clients add to the limit only as long as it is below most bytes, which does not make the limit itself less; 0: always.
func ClientsUpTo(most int64) {
	heap.mu.Lock()
	defer heap.mu.Unlock()
	heap.most = most
	setLimit()
}

// setLimit tells the collector, if there is a limit. The lock is held.
func setLimit() {
	heap.known = heap.clients
	limit := heap.limit + heap.clients
	if heap.most > 0 {
		limit = max(min(limit, heap.most), heap.limit)
	}
	if heap.limit > 0 {
		debug.SetMemoryLimit(max(limit-heap.outside, limit/leastHeap))
	}
}

// atOnce is the most memory that is taken without a look at the collector's limit. Go's collector works while
// memory is taken bit by bit: what is taken at once comes on top of its limit.
const atOnce = 16 << 20

// collect makes room on the heap for bytes that are taken at once, if there is none up to the
// collector's limit.
func collect(bytes int64) {
	if bytes <= atOnce {
		return
	}
	taken := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(taken)
	if limit := debug.SetMemoryLimit(-1); int64(taken[0].Value.Uint64()) > limit-bytes {
		runtime.GC()
	}
}
